"""How much one connection may have under way at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from sandbox.rpc import faults
from sandbox.rpc.faults import Fault

REQUESTS = 2048
BYTES = 512 * 2**20


class Budget:
    """Bytes held for requests and answers. What does not fit is refused, not queued: waiting for room could wait
    for a command that itself waits to be cancelled."""

    def __init__(self, limit: int = BYTES) -> None:
        self._left = limit
        self._lock = Lock()

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Raises Fault(BUSY) when there is no room."""
        with self._lock:
            if size > self._left:
                raise Fault(faults.BUSY, "too much data under way on this connection; wait for answers first")
            self._left -= size
        try:
            yield
        finally:
            with self._lock:
                self._left += size
