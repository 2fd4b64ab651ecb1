"""`sandbox pause` and `sandbox resume`: stop what runs in a sandbox, and continue it."""

from __future__ import annotations

from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.add_argument("id", nargs="+", help=_("ids of sandboxes, or the beginnings of them"))


def run(arguments: Namespace) -> int:
    return _each(arguments, "pause")


def resume(arguments: Namespace) -> int:
    """`sandbox resume`."""
    return _each(arguments, "resume")


def _each(arguments: Namespace, what: str) -> int:
    from sandbox.client import attach

    for id in arguments.id:
        with attach(id) as client:
            getattr(client, what)()
            print(client.id)
    return 0
