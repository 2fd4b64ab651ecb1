"""`sandbox apply`: carries a sandbox's changes over to the project."""

from __future__ import annotations

import sys

from sandbox.cli.diff import find
from sandbox.words import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add(parser: ArgumentParser) -> None:
    parser.add_argument("id", help=_("the sandbox, or the beginning of its id"))
    parser.add_argument("paths", nargs="*", metavar="path", help=_("only these files and directories"))
    parser.add_argument("--overwrite", action="store_true", help=_("also where the host's file changed meanwhile"))


def run(arguments: Namespace) -> int:
    from sandbox.vfs.review import printable, summary, unified

    entry, workspace = find(arguments.id)
    found = {change.path: change for change in workspace.changes()}
    done = workspace.apply(arguments.paths or None, overwrite=arguments.overwrite)
    for path in done.applied:
        print(summary(found[path]) if path in found else printable(path))
    for path, reason in done.refused:
        print(_("not applied: {path}: {reason}").format(path=printable(path), reason=reason), file=sys.stderr)
        if path in found and found[path].conflict:
            # Both sides as they are now: the host's lines with a minus, the sandbox's with a plus.
            print("\n".join(unified(workspace, found[path])), file=sys.stderr)
    if not done.applied and not done.refused:
        print(_("nothing changed"))
    if not entry.running and not workspace.changes():
        workspace.discard()  # all of it is the project's now
    return 1 if done.refused else 0
