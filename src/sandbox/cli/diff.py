"""`sandbox diff`: shows what a sandbox changed in a project with an overlay."""

from __future__ import annotations

import sys

from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from sandbox.registry.registry import Entry
    from sandbox.vfs.changes import Change
    from sandbox.vfs.file_state import FileState
    from sandbox.vfs.workspace import Workspace


def add(parser: ArgumentParser) -> None:
    add_id(parser)
    parser.add_argument("--summary", action="store_true", help=_("print one line per file"))
    parser.add_argument("--json", action="store_true", help=_("print JSON"))


def add_id(parser: ArgumentParser) -> None:
    """The argument that names the sandbox."""
    told = _("the sandbox's id, or the beginning of it (default: this project's latest)")
    parser.add_argument("id", nargs="?", help=told)


def run(arguments: Namespace) -> int:
    from sandbox.running_changes import changes_of

    entry, workspace = find(arguments.id)
    found = changes_of(entry, workspace)
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


def find(wanted: str | None) -> tuple[Entry, Workspace]:
    """The sandbox whose id is or begins with `wanted`, and its changes. Without `wanted`, this project's latest.

    Raises NotFound.
    """
    from sandbox.config.home import home
    from sandbox.registry import registry
    from sandbox.vfs.workspace import Workspace

    if wanted is None:
        return _last()
    entry = registry.find(home(), wanted)
    return entry, Workspace.find(home(), entry.id, ended=not entry.running)


def _last() -> tuple[Entry, Workspace]:
    """The latest sandbox of the project here, or in the nearest directory above. Prints its id if there are several."""
    import os

    from sandbox.config.home import home
    from sandbox.errors import NotFound
    from sandbox.registry import registry
    from sandbox.vfs.workspace import Workspace

    here = os.path.realpath(".")
    kept: list[tuple[int, int, Entry, Workspace]] = []
    for entry in registry.entries(home()):
        try:
            workspace = Workspace.find(home(), entry.id)
        except NotFound:
            continue
        root = os.path.realpath(workspace.root)
        if here == root or here.startswith(root.rstrip("/") + "/"):
            # The registry counts in seconds; the layer's own time is exact.
            kept.append((len(root), workspace.started_ns, entry, workspace))
    if not kept:
        raise NotFound("no sandbox has changes to {here}; `sandbox run --overlay` keeps changes", here=here)
    _depth, _when, entry, workspace = max(kept, key=lambda one: one[:2])
    if len(kept) > 1:
        print(f"sandbox: {entry.id}", file=sys.stderr)
    return entry, workspace


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


def _state(state: FileState | None) -> dict[str, object] | None:
    if state is None:
        return None
    return {"kind": state.kind, "mode": f"{state.mode:04o}", "size": state.size, "target": state.target}
