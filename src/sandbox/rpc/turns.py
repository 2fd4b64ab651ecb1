"""The order of one connection's requests: each begins when those before it have taken effect.

A command has taken effect when it runs, everything else when it is done; so a long command holds up nobody, and what
was written before a command was asked for is there when it starts.
"""

from __future__ import annotations

from collections import deque
from threading import Event, Lock


class Turn:
    """One request's place in the line."""

    def __init__(self, turns: Turns) -> None:
        self.come = Event()
        self.passed = False
        self._turns = turns

    def wait(self) -> None:
        """Until every request before this one has taken effect."""
        self.come.wait()

    def over(self) -> None:
        """It has taken effect, or never will: the next one may begin. Idempotent."""
        self._turns.over(self)


class Turns:
    """The line. Each turn wakes only the next: a thousand that wait cost nothing."""

    def __init__(self) -> None:
        self._line: deque[Turn] = deque()
        self._lock = Lock()

    def behind_all(self) -> Turn:
        """A turn after all that were given out before."""
        turn = Turn(self)
        with self._lock:
            self._line.append(turn)
            if len(self._line) == 1:
                turn.come.set()
        return turn

    def at_once(self) -> Turn:
        """A turn that waits for nobody and nobody waits for."""
        turn = Turn(self)
        turn.passed = True
        turn.come.set()
        return turn

    def over(self, turn: Turn) -> None:
        with self._lock:
            turn.passed = True
            while self._line and self._line[0].passed:
                self._line.popleft()
            if self._line:
                self._line[0].come.set()
