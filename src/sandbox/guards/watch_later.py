"""Begins `LateMasks` after a delay, so that a short run does not even load it."""

from __future__ import annotations

from _thread import RLock  # `threading` is loaded later: see `readiness.py`

from sandbox.readiness import Later

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.guards.late_masks import LateMasks

DELAY = 0.25  # seconds of life before the watch begins


class WatchLater:
    """`begin` is called once, in the waiting thread, unless this is closed first."""

    def __init__(self, begin: Callable[[], LateMasks]) -> None:
        self._begin = begin
        # Reentrant: a garbage collection under the lock may close a forgotten sandbox.
        self._lock = RLock()
        self._masks: LateMasks | None = None
        self._closed = False
        self._later = Later(DELAY, self._due)

    def _due(self) -> None:
        """Raises RuntimeError when no thread can be started now; then it is called again."""
        with self._lock:
            if self._masks is None and not self._closed:
                self._masks = self._begin()

    def close(self) -> None:
        """Ends the watch. Idempotent."""
        with self._lock:
            self._closed, masks = True, self._masks
        self._later.cancel()
        if masks is not None:
            masks.close()

    def catch_up(self, patience: float) -> bool:
        """Begins at once if need be, and waits until what has appeared is covered, at most about `patience` seconds.
        Returns whether it is."""
        try:
            self._due()
        except RuntimeError:
            return False  # no thread can be started now
        return self._masks is None or self._masks.catch_up(patience)

    def wait(self, timeout: float | None = None) -> bool:
        """Begins at once, and waits until everything is watched; for tests."""
        self._due()
        return self._masks is not None and self._masks.watching.wait(timeout)
