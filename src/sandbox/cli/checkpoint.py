"""`sandbox checkpoint`: saves a running sandbox under a name."""

from __future__ import annotations

import sys

from sandbox.cli.output import print_json
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.add_argument("id", help=_("the sandbox's id, or the beginning of it"))
    parser.add_argument("name", nargs="?", help=_("the checkpoint's name (default: a generated one)"))
    parser.add_argument("--json", action="store_true", help=_("print JSON"))


def run(arguments: Namespace) -> int:
    from sandbox.client import attach

    with attach(arguments.id) as client:
        made = client.checkpoint(arguments.name)
    if arguments.json:
        print_json(dict(made))
        return 0
    print(made.name)
    if made.saves == "files":
        said = _("only files were saved: the engine {engine} saves neither processes nor memory")
        print(f"sandbox: {said.format(engine=made.engine)}", file=sys.stderr)
    if made.lost:
        said = _("{count} open files without a name could not be saved")
        print(f"sandbox: {said.format(count=len(made.lost))}", file=sys.stderr)
    return 0
