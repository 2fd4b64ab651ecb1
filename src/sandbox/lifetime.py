"""How long a sandbox lives when nobody ends it: a lifetime, and an end after some time without use."""

from __future__ import annotations

import time
from _thread import RLock  # `threading` is loaded when there is something to wait for

from sandbox import arguments
from sandbox.errors import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Condition, Thread
    from types import EllipsisType


class Lifetime:
    """Ends a sandbox in time. Its thread is started when there is something to wait for.

    `busy` says whether a command runs; `end` gets the reason and ends the sandbox. Neither may hold a reference to the
    sandbox.
    """

    def __init__(self, busy: Callable[[], bool], end: Callable[[str], object]) -> None:
        self._busy = busy
        self.end = end
        self._lock = RLock()
        self._changed: Condition | None = None
        self._ends_at: float | None = None
        self._idle: float | None = None
        self._used_at = time.monotonic()
        self._thread: Thread | None = None
        self._closed = False

    def set(self, lifetime: float | EllipsisType | None = ..., idle_timeout: float | EllipsisType | None = ...) -> None:
        """Changes one or both, in seconds from now; None removes the limit. Raises InvalidArgument."""
        lives = lifetime if lifetime is ... else arguments.seconds(lifetime, "lifetime")
        idle = idle_timeout if idle_timeout is ... else arguments.seconds(idle_timeout, "idle_timeout")
        from threading import Condition, Thread

        with self._lock:
            self.used()
            if lives is not ...:
                self._ends_at = None if lives is None else time.monotonic() + lives
            if idle is not ...:
                self._idle = idle
            if self._changed is None:
                self._changed = Condition(self._lock)
            if self._next() is not None and self._thread is None and not self._closed:
                self._thread = Thread(target=self._wait, args=(self._changed,), name="sandbox-lifetime", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def used(self) -> None:
        """Notes that the sandbox is used now."""
        self._used_at = time.monotonic()

    @property
    def left(self) -> float | None:
        """Seconds until the lifetime is over; None if it has no limit."""
        ends_at = self._ends_at
        return None if ends_at is None else max(0.0, ends_at - time.monotonic())

    def close(self) -> None:
        """The sandbox ends: there is nothing to wait for any more."""
        with self._lock:
            self._closed = True
            if self._changed is not None:
                self._changed.notify_all()

    def _next(self) -> float | None:
        """When to look again."""
        times = [] if self._ends_at is None else [self._ends_at]
        if self._idle is not None:
            if self._busy():
                self.used()
            times.append(self._used_at + self._idle)
        return min(times, default=None)

    def _reason(self) -> str | None:
        now = time.monotonic()
        if self._ends_at is not None and now >= self._ends_at:
            return Message("its lifetime is over")
        if self._idle is not None and now >= self._used_at + self._idle:
            return Message("nobody has used it for {idle:g} seconds", idle=self._idle)
        return None

    def _wait(self, changed: Condition) -> None:
        with changed:
            while True:
                at = self._next()
                reason = None if self._closed else self._reason()
                if reason is not None or self._closed:
                    break
                changed.wait(None if at is None else max(0.0, at - time.monotonic()))
        if reason is not None:
            self.end(reason)
