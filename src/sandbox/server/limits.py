"""Rate limits: a token bucket for each client."""

from __future__ import annotations

import time

from sandbox.server.refusal import Refusal

RATE = 500.0  # requests per second …
BURST = 1000.0  # … after a burst of this many
WRONG_RATE = 0.5  # wrong tokens per second, from one address
WRONG_BURST = 20.0
AT_ONCE = 768  # requests of one token under way: a running command takes one of the server's 1024 threads
_MOST = 10_000  # buckets kept


class UnderWay:
    """How many requests each token has under way, so that one cannot take everybody's threads. Used only from the event
    loop."""

    def __init__(self, most: int = AT_ONCE) -> None:
        self._most = most
        self._counts: dict[str, int] = {}

    def begin(self, who: str) -> None:
        """Counts one more. Raises Refusal when there are too many."""
        count = self._counts.get(who, 0)
        if count >= self._most:
            raise Refusal(429, "too_many_requests", f"{count} requests of this token are under way")
        self._counts[who] = count + 1

    def end(self, who: str) -> None:
        """One has ended."""
        self._counts[who] -= 1
        if not self._counts[who]:
            del self._counts[who]


class Buckets:
    """Used only from the event loop."""

    def __init__(self, rate: float = RATE, burst: float | None = None) -> None:
        self._rate, self._burst = rate, burst if burst is not None else 2 * rate
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, who: str) -> float:
        """Counts one request. Returns 0, or the seconds until there is room for it."""
        return self._take(who, self._rate, self._burst)

    def penalty(self, who: str) -> None:
        """Counts a wrong token. Raises Refusal after too many."""
        if wait := self._take(who, WRONG_RATE, WRONG_BURST):
            raise Refusal(429, "too_many_requests", "too many wrong tokens", {"retry-after": str(max(1, round(wait)))})

    def _take(self, who: str, rate: float, burst: float) -> float:
        now = time.monotonic()
        left, then = self._left.get(who, (burst, now))
        left = min(burst, left + (now - then) * rate)
        if left < 1:
            return (1 - left) / rate
        if len(self._left) >= _MOST and who not in self._left:
            self._forget(now)
        self._left[who] = (left - 1, now)
        return 0.0

    def _forget(self, now: float) -> None:
        """Drops the quarter of the buckets that has not been used for longest."""
        by_age = sorted(self._left, key=lambda one: self._left[one][1])
        for who in by_age[: _MOST // 4]:
            del self._left[who]
