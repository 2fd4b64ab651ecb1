"""The registry for Python programs: `from sandbox import list_sandboxes, get_sandbox, kill_sandbox`."""

from __future__ import annotations

from sandbox.config.home import home
from sandbox.registry.registry import Entry, entries, find


def list_sandboxes(status: str | None = None) -> list[Entry]:
    """Returns this user's sandboxes on this machine, the newest first; with `status`, only those that have it."""
    return [entry for entry in entries(home()) if status is None or entry.status == status]


def get_sandbox(id: str) -> Entry:
    """Returns the sandbox with that id, or whose id alone begins with it. Raises NotFound."""
    return find(home(), id)


def kill_sandbox(id: str) -> None:
    """Ends a running sandbox; returns when it is gone. Raises NotFound, or SandboxError when it is not running."""
    from sandbox.registry.remove import kill

    kill(find(home(), id))


# The names that earlier programs use.
list_vms, get_vm, kill_vm = list_sandboxes, get_sandbox, kill_sandbox
