"""Output of a command that nobody has read yet."""

from __future__ import annotations

from _thread import allocate_lock as Lock

from sandbox.result import CUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
else:
    from _collections import deque  # `collections` itself takes a millisecond to import


class UnreadOutput:
    """One stream's output, up to a limit. The rest is counted and marked, but not kept.

    Hold `lock` to read the stream, so that two threads do not take pieces out of order.
    """

    __slots__ = ("lock", "_limit", "_over", "_parts", "_size")

    def __init__(self, limit: int) -> None:
        self.lock = Lock()
        self._limit = limit
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._over = 0

    def __bool__(self) -> bool:
        return bool(self._parts) or self._over > 0

    @property
    def truncated(self) -> bool:
        """Whether there was more than is kept."""
        return self._over > 0

    def add(self, data: bytes) -> None:
        """Keeps a piece, or as much of it as there is room for."""
        kept = data[: self._limit - self._size]
        if kept:
            self._parts.append(kept)
            self._size += len(kept)
        self._over += len(data) - len(kept)

    def value(self) -> bytes:
        """Everything that is kept, and the mark."""
        return b"".join(self._parts) + (CUT % self._over if self._over else b"")

    def take(self, size: int) -> bytes:
        """Removes and returns at most `size` bytes; b"" when nothing is kept."""
        if not self._parts and self._over:
            self._parts.append(CUT % self._over)
            self._over = 0
            self._size += len(self._parts[0])
        if not self._parts:
            return b""
        first = self._parts.popleft()
        if len(first) > size:
            self._parts.appendleft(first[size:])
        self._size -= min(len(first), size)
        return first[:size]
