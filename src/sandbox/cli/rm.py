"""`sandbox rm`: deletes stopped sandboxes."""

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
    parser.add_argument("--stopped", action="store_true", help=_("remove every stopped sandbox"))


def run(arguments: Namespace) -> int:
    if bool(arguments.id) == arguments.stopped:
        raise SandboxError("no sandbox given; name one or use --stopped")
    if arguments.stopped:
        chosen = [entry for entry in entries(home()) if entry.status == "stopped"]
    else:
        chosen = [find(home(), id) for id in arguments.id]
    from sandbox.cli.prune import put_right

    put_right()
    for entry in chosen:
        remove.remove(entry)
        print(entry.id)
    return 0
