"""The registry for Python programs: `from sandbox import list_vms, get_vm, kill_vm`."""

from __future__ import annotations

from sandbox.config.home import home
from sandbox.registry.registry import Entry, entries, find


def list_vms(status: str | None = None) -> list[Entry]:
    """Every sandbox on this machine that is this user's, the newest first; only those of `status` when it is given."""
    return [entry for entry in entries(home()) if status is None or entry.status == status]


def get_vm(id: str) -> Entry:
    """The sandbox of that id, which may be shortened while it is unique. Raises NotFound."""
    return find(home(), id)


def kill_vm(id: str) -> None:
    """Ends a running sandbox; returns when it is gone. Raises NotFound, or SandboxError when it is not running."""
    from sandbox.registry.remove import kill

    kill(find(home(), id))
