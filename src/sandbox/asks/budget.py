"""How often questions may come: a burst, then one every few seconds, and fewer after each denial."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

BURST = 10  # questions at once
EVERY, RAREST = 5.0, 300.0  # seconds between questions after that, at first and at most


class QuestionBudget:
    """How many questions a sandbox may still ask. Not thread-safe: the caller holds a lock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tokens = float(BURST)
        self._at = clock()
        self._every = EVERY

    def enough(self) -> bool:
        """Whether a question may be asked now."""
        now = self._clock()
        self._tokens = min(float(BURST), self._tokens + (now - self._at) / self._every)
        self._at = now
        return self._tokens >= 1

    def take(self) -> bool:
        """Counts a question that is asked now. Returns False if it may not be asked."""
        if not self.enough():
            return False
        self._tokens -= 1
        return True

    def denied(self) -> None:
        """Questions come half as often from now on."""
        self._every = min(self._every * 2, RAREST)

    def allowed(self) -> None:
        """Questions come as often as at first."""
        self._every = EVERY
