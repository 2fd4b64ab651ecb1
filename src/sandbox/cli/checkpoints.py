"""`sandbox checkpoints`: lists and removes saved sandboxes."""

from __future__ import annotations

import time

from sandbox.checkpoints import store
from sandbox.cli.output import print_json, shown, table
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from sandbox.info import Checkpoint


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox checkpoints list [--json] | rm NAME…"
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    listed = actions.add_parser("list", help=_("list the checkpoints, the newest first"))
    listed.add_argument("--json", action="store_true", help=_("print JSON"))
    removed = actions.add_parser("rm", help=_("remove checkpoints; sandboxes made from them keep running"))
    removed.add_argument("name", nargs="+", help=_("their names"))


def run(arguments: Namespace) -> int:
    if arguments.action == "rm":
        for name in arguments.name:
            store.remove(name)
            print(name)
        return 0
    found = store.checkpoints()
    if arguments.json:
        print_json([dict(one) for one in found])
    elif found:
        print(table([_row(one) for one in found]))
    return 0


def _row(one: Checkpoint) -> tuple[str, ...]:
    return one.name, shown(one.sandbox), shown(one.engine), shown(one.saves), _size(one.size), _when(one.created)


def _size(size: int) -> str:
    return f"{size / 2**20:.1f} MB"


def _when(created: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(created))
