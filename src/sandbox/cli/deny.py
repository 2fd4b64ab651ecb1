"""`sandbox deny N`: denies what a sandbox asks for."""

from __future__ import annotations

from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.add_argument("number", metavar="N", type=int, help=_("the question's number, as in `sandbox asks`"))


def run(arguments: Namespace) -> int:
    from sandbox.cli.asks import answer

    return answer(arguments.number, "deny", "sandbox deny")
