"""The order of one connection's requests: each begins when those before it have taken effect.

A command has taken effect when it runs, any other request when it is done. So a long command delays no other request,
and a command sees every file that an earlier request wrote.
"""

from __future__ import annotations

from collections import deque
from threading import Event, Lock


class Turn:
    """One request's place in the queue."""

    def __init__(self, order: RequestOrder) -> None:
        self.come = Event()
        self.over = Event()
        self.passed = False
        self._order = order

    def wait(self) -> None:
        """Waits until every request before this one has taken effect."""
        self.come.wait()

    def done(self) -> None:
        """The request has taken effect, or never will: the next one may begin. Idempotent."""
        self._order.done(self)


class RequestOrder:
    """The queue. Each turn wakes only the next one, so waiting turns cost nothing."""

    def __init__(self) -> None:
        self._queue: deque[Turn] = deque()
        self._lock = Lock()

    def next_turn(self) -> Turn:
        """Returns a turn after all those given out before."""
        turn = Turn(self)
        with self._lock:
            self._queue.append(turn)
            if len(self._queue) == 1:
                turn.come.set()
        return turn

    def unordered(self) -> Turn:
        """Returns a turn that waits for no other, and that no other waits for."""
        turn = Turn(self)
        turn.passed = True
        turn.come.set()
        return turn

    def done(self, turn: Turn) -> None:
        with self._lock:
            turn.passed = True
            turn.over.set()
            while self._queue and self._queue[0].passed:
                self._queue.popleft()
            if self._queue:
                self._queue[0].come.set()
