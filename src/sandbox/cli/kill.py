"""`sandbox kill`: stops running sandboxes."""

from __future__ import annotations

from sandbox.config.home import home
from sandbox.errors import SandboxError
from sandbox.i18n import _
from sandbox.registry import remove
from sandbox.registry.registry import entries, find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.add_argument("id", nargs="*", help=_("ids of sandboxes, or the beginnings of them"))
    parser.add_argument("--all", action="store_true", help=_("kill every running sandbox"))


def run(arguments: Namespace) -> int:
    if bool(arguments.id) == arguments.all:
        raise SandboxError("no sandbox given; name one or use --all")
    if arguments.all:
        chosen = [entry for entry in entries(home()) if entry.running]
    else:
        chosen = [find(home(), id) for id in arguments.id]  # find all of them before killing the first
    for entry in chosen:
        remove.kill(entry)
        print(entry.id)
    return 0
