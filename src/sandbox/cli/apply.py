"""`sandbox apply`: shows a sandbox's changes, asks on a terminal, and applies them to the project."""

from __future__ import annotations

import os
import sys

from sandbox.cli.diff import find
from sandbox.errors import SandboxError
from sandbox.i18n import _
from sandbox.running_changes import apply_changes, changes_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from sandbox.registry.registry import Entry
    from sandbox.vfs.changes import Change
    from sandbox.vfs.workspace import Workspace


def add(parser: ArgumentParser) -> None:
    parser.usage = "sandbox apply [--yes] [--overwrite] [id] [path…] | [--branch NAME] [--commit-rest] [--force] [id]"
    told = _("the sandbox; apply only these files and directories")
    parser.add_argument("words", nargs="*", metavar="[id] path", help=told)
    parser.add_argument("--overwrite", action="store_true", help=_("also overwrite files that changed on the host"))
    told = _("bring its commits to this branch (default: the one it worked on)")
    parser.add_argument("--branch", metavar="NAME", help=told)
    told = _("commit uncommitted changes to the branch at the end")
    parser.add_argument("--commit-rest", action="store_true", help=told)
    told = _("replace a branch that the commits do not continue; allow a default branch")
    parser.add_argument("--force", action="store_true", help=told)
    parser.add_argument("--yes", "-y", action="store_true", help=_("do not ask for confirmation"))


def run(arguments: Namespace) -> int:
    from sandbox.vfs.review import printable, summary, unified
    from sandbox.vfs.workspace import digest

    entry, workspace, paths = meant(arguments.words)
    about_branch = arguments.branch is not None or arguments.commit_rest or arguments.force
    if about_branch or (not paths and os.path.exists(os.path.join(workspace.directory, "branch.json"))):
        from sandbox.cli.branch import bring_later

        return bring_later(entry, arguments, paths)
    changes = changes_of(entry, workspace)
    reviewed = None
    if os.isatty(0) and os.isatty(1) and not arguments.yes and changes:
        _ask(workspace, changes, paths)
        reviewed = digest(changes)
    found = {change.path: change for change in changes}
    done = apply_changes(entry, workspace, paths or None, arguments.overwrite, reviewed)
    if reviewed is None:
        for path in done.applied:
            print(summary(found[path]) if path in found else printable(path))
    elif done.applied:  # the list is on the screen already, above the question
        print(_("applied: {count}").format(count=len(done.applied)))
    for path, reason in done.refused:
        told = {"path": printable(path), "reason": printable(reason)}
        print(_("not applied: {path}: {reason}").format(**told), file=sys.stderr)
        if path in found and found[path].conflict:
            # Both sides as they are now: the host's lines with a minus, the sandbox's with a plus.
            print("\n".join(unified(workspace, found[path])), file=sys.stderr)
    if not done.applied and not done.refused:
        print(_("nothing changed"))
    if not entry.running and not workspace.changes():
        workspace.discard()  # everything has been applied
    return 1 if done.refused else 0


def meant(words: list[str]) -> tuple[Entry, Workspace, list[str]]:
    """The sandbox and the paths. A first word that begins with "vm-" is an id; every other word is a path.

    The beginning of an id without "vm-" is not taken here: `discard d` must never throw away all of vm-d3…
    """
    if words and words[0].startswith("vm-"):
        return *find(words[0]), words[1:]
    return *find(None), words


def _ask(workspace: Workspace, changes: list[Change], paths: list[str]) -> None:
    """Shows the changes and waits for a yes. Raises SandboxError if the user refuses."""
    from sandbox.vfs.review import printable, summary

    tops = [os.path.relpath(path, workspace.root) if os.path.isabs(path) else os.path.normpath(path) for path in paths]
    for change in changes:
        if not tops or any(top == "." or change.path == top or change.path.startswith(top + "/") for top in tops):
            print(summary(change))
    question = _("Apply these changes to {root}? [y/N] ").format(root=printable(workspace.root))
    print(question, end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise SandboxError("nothing was applied")
