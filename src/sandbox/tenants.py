"""What the guards do to the tenants of a sandbox: stop them for a moment, or end them."""

from __future__ import annotations

from sandbox.engines.base import GuestRunning
from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType as Lock
    from collections.abc import Callable
    from weakref import ref

    from sandbox.sandbox import Sandbox


class Tenants:
    """The tenants of one sandbox. For a single thread. The guards must not keep the sandbox itself alive."""

    def __init__(self, sandbox: ref[Sandbox], end: Callable[[str], object]) -> None:
        """`end` ends the sandbox; whoever uses it learns the reason."""
        self._sandbox = sandbox
        self.end = end
        self._stopped: tuple[GuestRunning, Lock] | None = None

    def stop(self) -> None:
        """Stops all of them until `let_go`. If the sandbox is paused, or just being paused or saved, does nothing.

        Raises OSError when one does not stop, SandboxClosed when they have ended.
        """
        sandbox = self._sandbox()
        if sandbox is None or self._stopped is not None or not sandbox._saving.acquire(blocking=False):
            return
        running, saving = sandbox._running, sandbox._saving
        try:
            if not sandbox._paused:
                assert isinstance(running, GuestRunning)  # only such a sandbox has a namespace to look after
                running.stop_tenants()
                self._stopped = running, saving
        finally:
            if self._stopped is None:
                saving.release()

    def let_go(self) -> None:
        """Lets them go on. Idempotent."""
        stopped, self._stopped = self._stopped, None
        if stopped is None:
            return
        running, saving = stopped
        try:
            running.let_tenants_go()
        except (OSError, SandboxError):
            pass  # they have ended
        finally:
            saving.release()
