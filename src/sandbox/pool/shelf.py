"""What waits to be handed out, and the thread that builds, checks and discards it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from threading import Condition, Thread, current_thread
from typing import TYPE_CHECKING, Generic, TypeVar

from sandbox.errors import SandboxClosed
from sandbox.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

MOST = 4096
MAX_AGE = 600.0  # seconds that one waits at most: its view of the host is as old as the build
CHECK_EVERY = 30.0
SETTLE = 0.005  # seconds after a hand-out in which nothing is built: the caller runs its first command then
PAUSES = (0.1, 1.0, 10.0, 30.0)  # seconds between attempts while building fails


class PoolStats(Fields):
    """The state of a pool. `empty` counts the calls of `get` that found none ready and built one themselves."""

    __slots__ = fields = ("ready", "built", "handed_out", "empty", "unhealthy", "aged", "problem")

    def __init__(
        self, ready: int, built: int, handed_out: int, empty: int, unhealthy: int, aged: int, problem: str
    ) -> None:
        self.ready = ready
        self.built = built
        self.handed_out = handed_out
        self.empty = empty
        self.unhealthy = unhealthy
        self.aged = aged
        self.problem = problem  # why the last build failed; "" when it did not


class Waiting(Generic[T]):
    """One that waits, with its times."""

    __slots__ = ("one", "since", "checked")

    def __init__(self, one: T) -> None:
        self.one = one
        self.since = self.checked = time.monotonic()


class Shelf(ABC, Generic[T]):
    """Things that a thread makes ahead, and that are taken once. Nothing here refers to the pool, so that a pool nobody
    uses any more is collected and closed."""

    def __init__(self, make: Callable[[], T], size: int, max_age: float) -> None:
        self._make = make
        self._size = size
        self._max_age = max_age
        self._changed = Condition()
        self._waiting: deque[Waiting[T]] = deque()
        self._gone: list[T] = []  # to be closed by the thread
        self._closed = False
        self._problem: BaseException | None = None
        self._failures = 0
        self._taken_at = 0.0
        self._woken = False
        self._counts = dict.fromkeys(("built", "handed_out", "empty", "unhealthy", "aged"), 0)
        self._thread = Thread(target=self._work, name="sandbox-pool", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # -- what differs between sandboxes and launchers

    @abstractmethod
    def _alive(self, one: T) -> bool:
        """Whether it still runs, as far as can be known without waiting."""

    @abstractmethod
    def _healthy(self, one: T) -> bool:
        """Whether it works; may take its time."""

    def _hand_out(self, one: T) -> bool:
        """Brings one that has waited up to date. Returns whether that was possible in time."""
        return True

    @abstractmethod
    def _end(self, one: T) -> None:
        """Ends one that is not handed out."""

    # -- taking

    def take(self) -> T:
        """Takes one, or makes one when none is ready. Raises SandboxClosed, and what making one raises."""
        one = self._next()
        if one is None:
            return self._make()
        try:
            up_to_date = self._hand_out(one)
        except BaseException:
            self._end(one)  # nobody gets it, so nobody else would
            raise
        return one if up_to_date else self._made_instead(one)

    def _made_instead(self, one: T) -> T:
        """Makes one now, which looks at everything before it is there. `one` is ended."""
        with self._changed:
            self._counts["unhealthy"] += 1
            self._gone.append(one)
            self._changed.notify_all()
        return self._make()

    def _next(self) -> T | None:
        with self._changed:
            while self._waiting and not self._closed:
                one = self._waiting.popleft().one
                self._taken_at = time.monotonic()
                self._changed.notify_all()
                if self._alive(one):
                    self._counts["handed_out"] += 1
                    return one
                self._counts["unhealthy"] += 1
                self._gone.append(one)
            if self._closed:
                raise SandboxClosed("the pool is closed")
            self._counts["handed_out"] += 1
            self._counts["empty"] += 1
            return None

    def fill(self, timeout: float | None) -> bool:
        """Waits until it is full. Raises why the last attempt to make one failed."""
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._waiting) >= self._size or self._closed or self._problem is not None, timeout
            )
            if self._problem is not None:
                raise self._problem
            return len(self._waiting) >= self._size

    def stats(self) -> PoolStats:
        with self._changed:
            problem = "" if self._problem is None else str(self._problem)
            return PoolStats(len(self._waiting), **self._counts, problem=problem)

    def wake(self) -> None:
        """Makes the thread look at once; for tests."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> None:
        """Ends everything that waits. Idempotent; returns when nothing is left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not current_thread() and self._thread.is_alive():
            self._thread.join()
        with self._changed:
            left = [*self._gone, *(one.one for one in self._waiting)]
            self._gone, self._waiting = [], deque()
        for one in left:
            self._end(one)

    # -- the thread

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._something_to_do, self._idle_time())
                self._let_first_command_run()
                if self._closed:
                    return
                gone, self._gone = self._gone, []
                room = len(self._waiting) < self._size
            for one in gone:
                self._end(one)
            if room:
                self._add()
            else:
                self._look_at_oldest()

    def _let_first_command_run(self) -> None:
        """Waits a moment after a hand-out, unless half or less are left."""
        while not self._closed and len(self._waiting) > self._size // 2:
            left = self._taken_at + SETTLE - time.monotonic()
            if left <= 0:
                return
            self._changed.wait(left)

    def _something_to_do(self) -> bool:
        woken, self._woken = self._woken, False
        return woken or self._closed or bool(self._gone) or len(self._waiting) < self._size

    def _idle_time(self) -> float:
        """Seconds until the next one must be looked at."""
        now = time.monotonic()
        times = [min(one.checked + CHECK_EVERY, one.since + self._max_age) for one in self._waiting]
        return max(0.0, min(times, default=now + CHECK_EVERY) - now)

    def _add(self) -> None:
        try:
            made = self._make()
        except Exception as problem:  # noqa: BLE001 - callers of `take` meet it, too
            self._failed(problem)
            return
        with self._changed:
            self._problem, self._failures = None, 0
            self._counts["built"] += 1
            self._waiting.append(Waiting(made))
            self._changed.notify_all()

    def _failed(self, problem: BaseException) -> None:
        """Waits, longer after each failure; closing the pool interrupts that."""
        with self._changed:
            self._problem = problem
            self._changed.notify_all()
            pause = PAUSES[min(self._failures, len(PAUSES) - 1)]
            self._failures += 1
            self._changed.wait_for(lambda: self._closed, pause)

    def _look_at_oldest(self) -> None:
        """Checks one that is due. Meanwhile it cannot be handed out; all others can."""
        now = time.monotonic()
        with self._changed:
            due = [one for one in self._waiting if self._due(one, now)]
            if not due:
                return
            self._waiting.remove(due[0])
        one = due[0]
        why = "aged" if now >= one.since + self._max_age else "" if self._healthy(one.one) else "unhealthy"
        with self._changed:
            if not why:
                one.checked = time.monotonic()
                self._waiting.append(one)
                return
            self._counts[why] += 1
        self._end(one.one)

    def _due(self, one: Waiting[T], now: float) -> bool:
        return now >= one.checked + CHECK_EVERY or now >= one.since + self._max_age
