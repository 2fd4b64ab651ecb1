"""The one sandbox that a connection talks about."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any

from sandbox.rpc import faults
from sandbox.rpc.budget import ALL_BYTES, Budget
from sandbox.rpc.faults import Fault
from sandbox.rpc.terminals import Terminals

if TYPE_CHECKING:
    from sandbox.sandbox import Sandbox


class Slot:
    """A sandbox that `create` makes, or that is there already (a connection to its socket)."""

    def __init__(
        self, sandbox: Sandbox | None = None, *, file: str | None = None, flags: Mapping[str, Any] | None = None
    ) -> None:
        """`file` and `flags` are the command line's, for the sandbox that `create` makes."""
        self.terminals: Terminals = Terminals()
        self.budget: Budget = Budget(ALL_BYTES)
        self._sandbox = sandbox
        self._file = file
        self._flags = dict(flags or {})
        self._expected = 0
        self._changed = Condition()
        self._creating = Lock()

    def expect(self) -> None:
        """A `create` was sent: whatever comes after it on the line waits for it."""
        with self._changed:
            self._expected += 1

    def create(self, asked: Mapping[str, Any], hooks: object | None = None) -> Sandbox:
        """Starts the sandbox as the command line and `asked` say. Raises Fault when there is one already."""
        from sandbox.cli.run import tell_ignored
        from sandbox.config.dialects.create import translate
        from sandbox.config.layers import resolve
        from sandbox.sandbox import Sandbox

        with self._creating:
            if self._sandbox is not None:
                raise Fault(faults.ALREADY_CREATED, "there is a sandbox here; start another `sandbox --rpc`")
            said = merged(self._flags, translate(asked).data)
            resolved = resolve(said, project=_root(said), config_file=self._file)
            self._sandbox = Sandbox(resolved.config, hooks=hooks)
            tell_ignored(resolved, self._sandbox.record)
        return self._sandbox

    def settled(self) -> None:
        """A `create` that was expected has been dealt with, one way or the other."""
        with self._changed:
            self._expected -= 1
            self._changed.notify_all()

    def sandbox(self) -> Sandbox:
        """The sandbox; a `create` that is under way is waited for. Raises Fault when there is none."""
        with self._changed:
            while self._expected and self._sandbox is None:
                self._changed.wait()
            if self._sandbox is None:
                raise Fault(faults.NOT_CREATED, "there is no sandbox yet; call `create` first")
            return self._sandbox

    def close(self) -> None:
        """Ends the sandbox, if there is one."""
        with self._changed:
            while self._expected:
                self._changed.wait()
            sandbox = self._sandbox
        if sandbox is not None:
            sandbox.close()


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Sections are merged; everything else, lists too, is replaced."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return both


def _root(said: Mapping[str, Any]) -> str:
    filesystem = said.get("filesystem")
    root = filesystem.get("root") if isinstance(filesystem, dict) else None
    return root if isinstance(root, str) else "."
