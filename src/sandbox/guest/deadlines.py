"""Until when the guest must have answered: one in a virtual machine is in the hands of its tenant, who may stop it."""

from __future__ import annotations

import time
from typing import Generic, TypeVar

Waiting = TypeVar("Waiting")


class Deadlines(Generic[Waiting]):
    """A deadline for each of those that wait. They do not come nearer while the machine is held."""

    def __init__(self) -> None:
        self._until: dict[Waiting, float] = {}
        self._stopped: float | None = None  # since when

    def set(self, one: Waiting, seconds: float | None) -> None:
        """From now on; None: it has no deadline any more."""
        if seconds is None:
            self._until.pop(one, None)
        else:
            self._until[one] = (self._stopped or time.monotonic()) + seconds

    def left(self) -> float | None:
        """Seconds until the next one; None: nobody has one, or the machine is held."""
        if not self._until or self._stopped is not None:
            return None
        return max(0.0, min(self._until.values()) - time.monotonic())

    def passed(self) -> list[Waiting]:
        """Those whose deadline is over. Each is named once."""
        if not self._until or self._stopped is not None:
            return []
        now = time.monotonic()
        late = [one for one, until in self._until.items() if until <= now]
        for one in late:
            del self._until[one]
        return late

    def stop(self) -> None:
        """The machine is held."""
        if self._stopped is None:
            self._stopped = time.monotonic()

    def go(self) -> None:
        """It goes on."""
        if self._stopped is not None:
            lost, self._stopped = time.monotonic() - self._stopped, None
            self._until = {one: until + lost for one, until in self._until.items()}
