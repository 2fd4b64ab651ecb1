"""`sandbox diff`: what a sandbox changed in an overlay project."""

from __future__ import annotations

import sys

from sandbox.words import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from sandbox.registry.registry import Entry
    from sandbox.vfs.changes import Change
    from sandbox.vfs.states import State
    from sandbox.vfs.workspace import Workspace


def add(parser: ArgumentParser) -> None:
    parser.add_argument("id", help=_("the sandbox, or the beginning of its id"))
    parser.add_argument("--summary", action="store_true", help=_("only one line a file"))
    parser.add_argument("--json", action="store_true", help=_("as JSON"))


def run(arguments: Namespace) -> int:
    _entry, workspace = find(arguments.id)
    found = workspace.changes()
    if arguments.json:
        import json

        json.dump([plain(change) for change in found], sys.stdout, indent=2)
        print()
        return 0
    from sandbox.vfs.review import summary, unified

    for change in found:
        print(summary(change))
    if not found:
        print(_("nothing changed"))
    if not arguments.summary:
        for change in found:
            lines = list(unified(workspace, change))
            if lines:
                print()
                print("\n".join(lines))
    return 0


def find(wanted: str) -> tuple[Entry, Workspace]:
    """The sandbox whose id is or begins with `wanted`, and its changes. Raises NotFound."""
    from sandbox.config.home import home
    from sandbox.registry import registry
    from sandbox.vfs.workspace import Workspace

    entry = registry.find(home(), wanted)
    return entry, Workspace.find(home(), entry.id, ended=not entry.running)


def plain(change: Change) -> dict[str, object]:
    """A change as JSON shows it."""
    return {
        "path": change.path,
        "kind": change.kind,
        "before": _state(change.before),
        "after": _state(change.after),
        "risk": change.risk,
        "conflict": change.conflict,
        "impossible": change.impossible,
        "notes": change.notes,
        "source": change.source,
    }


def _state(state: State | None) -> dict[str, object] | None:
    if state is None:
        return None
    return {"kind": state.kind, "mode": f"{state.mode:04o}", "size": state.size, "target": state.target}
