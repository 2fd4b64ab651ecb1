"""The one sandbox that a connection talks about."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Condition
from typing import TYPE_CHECKING, Any

from sandbox.rpc import faults
from sandbox.rpc.faults import Fault
from sandbox.rpc.terminals import Terminals

if TYPE_CHECKING:
    from sandbox.sandbox import Sandbox


class Place:
    """A sandbox that `create` makes, or that is there already (a connection to its socket)."""

    def __init__(
        self, sandbox: Sandbox | None = None, *, file: str | None = None, flags: Mapping[str, Any] | None = None
    ) -> None:
        """`file` and `flags` are the command line's, for the sandbox that `create` makes."""
        self.terminals = Terminals()
        self._sandbox = sandbox
        self._file = file
        self._flags = dict(flags or {})
        self._making = False
        self._changed = Condition()

    def create(self, asked: Mapping[str, Any]) -> Sandbox:
        """Starts the sandbox as the command line and `asked` say. Raises Fault when there is one already."""
        from sandbox.config.dialects.create import translate
        from sandbox.config.load import load, merge
        from sandbox.sandbox import Sandbox

        with self._changed:
            if self._sandbox is not None or self._making:
                raise Fault(faults.ALREADY_CREATED, "this connection has its sandbox; start another `sandbox --rpc`")
            self._making = True
        made = None
        try:
            made = Sandbox(load(merge(self._flags, translate(asked).data), file=self._file))
            return made
        finally:
            with self._changed:
                self._sandbox, self._making = made, False
                self._changed.notify_all()

    def sandbox(self) -> Sandbox:
        """The sandbox; a `create` that is under way is waited for. Raises Fault when there is none."""
        with self._changed:
            while self._making:
                self._changed.wait()
            if self._sandbox is None:
                raise Fault(faults.NOT_CREATED, "there is no sandbox yet; call `create` first")
            return self._sandbox

    def close(self) -> None:
        """Ends the sandbox, if there is one."""
        with self._changed:
            while self._making:
                self._changed.wait()
            sandbox = self._sandbox
        if sandbox is not None:
            sandbox.close()
