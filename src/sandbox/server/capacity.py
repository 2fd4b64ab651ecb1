"""How many sandboxes a server runs at a time. A request for one more waits in line for a while and is then refused: a
server that accepts more than its machine has room for fails for everybody."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition

from sandbox.rpc import errors
from sandbox.rpc.errors import Fault

PATIENCE = 30.0  # seconds that a request waits in line
LOOK = 0.2  # seconds between checks: a sandbox that ends by itself does not call `freed`


class Places:
    """Places for sandboxes, handed out first come, first served. Thread-safe."""

    def __init__(self, most: int | None, running: Callable[[], int], patience: float = PATIENCE) -> None:
        """`running` returns how many sandboxes there are. Without `most`, there is always room."""
        self.most = most
        self.refused = 0  # requests that waited in vain
        self._running = running
        self._patience = patience
        self._starting = 0
        self._line: deque[object] = deque()
        self._changed = Condition()

    @property
    def waiting(self) -> int:
        """How many requests wait in line."""
        return len(self._line)

    @contextmanager
    def hold(self, count: int = 1) -> Iterator[None]:
        """Reserves room for `count` more while they are being started. Raises Fault(BUSY) if there is none in time."""
        if self.most is None:
            yield
            return
        self._wait(count, self.most)
        try:
            yield
        finally:
            with self._changed:
                self._starting -= count
                self._changed.notify_all()

    def freed(self) -> None:
        """A sandbox has ended: the first in line checks at once."""
        with self._changed:
            self._changed.notify_all()

    def _wait(self, count: int, most: int) -> None:
        until = time.monotonic() + self._patience
        me = object()
        with self._changed:
            self._line.append(me)
            try:
                while self._line[0] is not me or self._starting + self._running() + count > most:
                    left = until - time.monotonic()
                    if left <= 0 or count > most:
                        self.refused += 1
                        raise Fault(
                            errors.BUSY,
                            "{most} sandboxes run on this server, which is its limit; none ended within {seconds} s",
                            most=most,
                            seconds=round(self._patience),
                        )
                    self._changed.wait(min(left, LOOK))
                self._starting += count
            finally:
                self._line.remove(me)
                self._changed.notify_all()
