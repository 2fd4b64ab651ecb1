"""What earlier answers still say: allowed for the sandbox's life, allowed once, or denied a short time ago."""

from __future__ import annotations

from sandbox.asks.question import ONCE, SANDBOX
from sandbox.asks.verdict import Verdict
from sandbox.errors import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from sandbox.asks.question import Subject

PAUSE, LONGEST_PAUSE = 30.0, 3600.0  # seconds that a denial holds; each further one doubles it
ONCE_LASTS = 30.0  # seconds that "once" waits for a client that has given up and tries again
MOST_DENIALS = 256  # beyond this, expired ones are dropped: a tenant can make up any number of names


class EarlierAnswers:
    """The answers of one sandbox's owner. Not thread-safe: the caller holds a lock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._granted: set[Hashable] = set()
        self._once: dict[Hashable, float] = {}  # until when the next attempt is allowed
        self._denied: dict[Hashable, tuple[float, float]] = {}  # when the denial ends, and how long it lasts

    def granted(self, subject: Subject) -> bool:
        """Whether it was allowed for the sandbox's whole life."""
        return subject.grant in self._granted

    def settles(self, subject: Subject) -> bool:
        """Whether `verdict` would return a verdict."""
        now = self._clock()
        return self.granted(subject) or self._once.get(subject.exact, 0.0) > now or self._denied_until(subject) > now

    def verdict(self, subject: Subject) -> Verdict | None:
        """What earlier answers say about it, or None. Uses up an answer that allowed it once."""
        now = self._clock()
        if self.granted(subject):
            return Verdict(True, SANDBOX, Message("allowed by its owner for this sandbox"))
        if self._once.pop(subject.exact, 0.0) > now:
            return Verdict(True, ONCE, Message("allowed by its owner once"))
        until = self._denied_until(subject)
        if until > now:
            why = Message(
                "it was refused a short time ago; its owner is asked again in {seconds:.0f} s at the earliest",
                seconds=until - now,
            )
            return Verdict(False, "", why)
        return None

    def grant(self, subject: Subject) -> None:
        """Allowed until the sandbox ends."""
        self._granted.add(subject.grant)

    def allow_next(self, subject: Subject) -> None:
        """The next attempt is allowed, if it comes soon."""
        self._once[subject.exact] = self._clock() + ONCE_LASTS

    def deny(self, subject: Subject) -> None:
        """Denied for a while, twice as long as the last time."""
        seconds = min(2 * self._denied.get(subject.key, (0.0, PAUSE / 2))[1], LONGEST_PAUSE)
        now = self._clock()
        self._denied[subject.key] = now + seconds, seconds
        if len(self._denied) > MOST_DENIALS:
            self._denied = {key: held for key, held in self._denied.items() if held[0] > now}

    def forget_denials(self, subject: Subject) -> None:
        """It was allowed: the next denial is short again."""
        self._denied.pop(subject.key, None)

    def _denied_until(self, subject: Subject) -> float:
        return self._denied.get(subject.key, (0.0, 0.0))[0]
