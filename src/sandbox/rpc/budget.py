"""How much memory the connections of one sandbox may use: for lines being read, requests and answers."""

from __future__ import annotations

from threading import Lock

from sandbox.errors import Message
from sandbox.rpc import errors
from sandbox.rpc.errors import Fault

REQUESTS = 2048  # of one connection
BYTES = 128 * 2**20  # of one connection
ALL_BYTES = 512 * 2**20  # of all of them together
NO_ROOM = Message("too much data in flight; wait for answers first")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self


class ByteBudget:
    """A number of bytes to share. A request that does not fit is refused, not queued: a queued `cancel` might wait for
    the very command that it is to cancel."""

    def __init__(self, limit: int = BYTES, shared: ByteBudget | None = None) -> None:
        """Everything that is taken here is also taken from `shared`, if given."""
        self._left = limit
        self._shared = shared
        self._lock = Lock()

    def hold(self, size: int = 0) -> Hold:
        """Takes `size` bytes until they are released. Raises Fault(BUSY) when there is no room."""
        hold = Hold(self)
        if not hold.grow(size):
            raise Fault(errors.BUSY, NO_ROOM)
        return hold

    def take(self, size: int) -> bool:
        """Takes `size` bytes. Returns False, and takes nothing, when there is no room."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
        if self._shared is None or self._shared.take(size):
            return True
        self._left_again(size)
        return False

    def give_back(self, size: int) -> None:
        self._left_again(size)
        if self._shared is not None:
            self._shared.give_back(size)

    def _left_again(self, size: int) -> None:
        with self._lock:
            self._left += size


class Hold:
    """Bytes taken from a budget."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._size = 0

    def grow(self, size: int) -> bool:
        """Takes more bytes. Returns False when there is no room; bytes held before are still held."""
        if not self._budget.take(size):
            return False
        self._size += size
        return True

    def release(self) -> None:
        """Gives all of it back. Idempotent."""
        size, self._size = self._size, 0
        self._budget.give_back(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
