"""`sandbox kill`: stops running sandboxes."""

from __future__ import annotations

import sys

from sandbox.cli.output import shown
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
    failed: list[SandboxError | OSError] = []
    for entry in chosen:
        try:
            remove.kill(entry)
        except (SandboxError, OSError) as problem:
            failed.append(problem)  # the others are ended all the same
        else:
            print(entry.id)
    for one in failed[:-1]:
        print(f"sandbox: {shown(_.text(one))}", file=sys.stderr)
    if failed:
        raise failed[-1]
    return 0
