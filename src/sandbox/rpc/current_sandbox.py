"""The one sandbox that all connections of a server use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any

from sandbox.errors import SandboxClosed
from sandbox.rpc import errors
from sandbox.rpc.budget import ALL_BYTES, ByteBudget
from sandbox.rpc.errors import Fault
from sandbox.rpc.pools import RpcPool

if TYPE_CHECKING:
    from sandbox.rpc.messages import PoolOpen
    from sandbox.sandbox import Sandbox
    from sandbox.sandboxes import Sandboxes


class CurrentSandbox:
    """A sandbox that `create` will make, or that exists already (a connection to its socket)."""

    def __init__(self, sandbox: Sandbox | None = None, sandboxes: Sandboxes | None = None) -> None:
        """`create` uses `sandboxes` to make one; without it, `sandbox` must be given."""
        self.budget: ByteBudget = ByteBudget(ALL_BYTES)
        self.pool = RpcPool()
        self._sandbox = sandbox
        self._sandboxes = sandboxes
        self._expected = 0
        self._changed = Condition()
        self._creating = Lock()

    def expect(self) -> None:
        """A `create` was sent: the requests after it wait until it is done."""
        with self._changed:
            self._expected += 1

    def create(self, asked: Mapping[str, Any], hooks: object | None = None) -> Sandbox:
        """Starts the sandbox. Raises Fault when there is one already, and what `Sandbox` raises."""
        return self._start(lambda sandboxes: sandboxes.create(asked, hooks=hooks))

    def restore(self, name: str, config: Mapping[str, Any], hooks: object | None = None) -> Sandbox:
        """Starts it from a checkpoint. Raises Fault when there is one already, and what `Sandbox.restore` raises."""
        return self._start(lambda sandboxes: sandboxes.restore(name, config, hooks=hooks))

    def open_pool(self, asked: PoolOpen) -> dict[str, Any]:
        """Begins to build a pool of sandboxes beside the one here. Raises Fault, and what `Pool` raises."""
        return self.pool.open(self._sandboxes, asked)

    def _start(self, start: Callable[[Sandboxes], Sandbox]) -> Sandbox:
        with self._creating:
            if self._sandbox is not None or self._sandboxes is None:
                raise Fault(errors.ALREADY_CREATED, "there is a sandbox here; start another `sandbox --rpc`")
            self._sandbox = start(self._sandboxes)
        return self._sandbox

    def settled(self) -> None:
        """A `create` that was expected has succeeded or failed."""
        with self._changed:
            self._expected -= 1
            self._changed.notify_all()

    def sandbox(self) -> Sandbox:
        """The sandbox; waits for a `create` that is under way. Raises Fault when there is none."""
        with self._changed:
            while self._expected and self._sandbox is None:
                self._changed.wait()
            if self._sandbox is None:
                raise Fault(errors.NOT_CREATED, "there is no sandbox yet; call `create` first")
            return self._sandbox

    def explained(self, problem: BaseException) -> BaseException:
        """The same error, with the reason added if it says that the sandbox has ended."""
        if not isinstance(problem, SandboxClosed) or self._sandbox is None:
            return problem
        from sandbox.service import why_closed

        return why_closed(self._sandbox, problem)

    def close(self) -> None:
        """Ends the sandbox, if there is one."""
        with self._changed:
            while self._expected:
                self._changed.wait()
            sandbox = self._sandbox
        self.pool.close(everything=True)
        if sandbox is not None:
            sandbox.close()
