"""Changes of a sandbox that may run in another process. That process applies them, because it can stop the tenants."""

from __future__ import annotations

from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.registry.registry import Entry
    from sandbox.vfs.changes import Change
    from sandbox.vfs.workspace import Applied, Workspace

TRIES = 5


def changes_of(entry: Entry, workspace: Workspace) -> list[Change]:
    """The changes; of a running sandbox, as they were at some moment for each. Raises SandboxError."""
    for turn in range(TRIES):
        try:
            return workspace.changes()
        except SandboxError:
            if not entry.running or turn == TRIES - 1:
                raise
    raise AssertionError


def apply_changes(
    entry: Entry, workspace: Workspace, paths: Sequence[str] | None, overwrite: bool, reviewed: str | None = None
) -> Applied:
    """Applies changes; with `reviewed`, only if they are still the same. Raises SandboxError."""
    if not entry.running:
        return workspace.apply(paths, overwrite=overwrite, reviewed=reviewed)
    from sandbox.client import attach

    with attach(entry.id) as client:
        return client._apply_reviewed(paths, overwrite, reviewed)
