"""Events on their way to a client. A slow client loses events and is told how many; it never slows the sandbox."""

from __future__ import annotations

from collections import deque
from threading import Condition, Thread
from typing import Any

from sandbox.events import event
from sandbox.rpc.lines import Writer

_WAITING = 4096


class EventQueue:
    """Sends events as notifications, in order, by a thread of its own that starts with the first one."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._queue: deque[dict[str, Any]] = deque()
        self._lost = 0
        self._changed = Condition()
        self._thread: Thread | None = None
        self._closed = False

    def put(self, happened: dict[str, Any]) -> None:
        """Called from any thread; returns at once."""
        with self._changed:
            if self._closed:
                return
            if len(self._queue) >= _WAITING:
                self._lost += 1
                return
            if self._lost:
                self._queue.append(event("lifecycle", state="events_lost", count=self._lost))
                self._lost = 0
            self._queue.append(happened)
            if self._thread is None:
                self._thread = Thread(target=self._send, name="sandbox-rpc-events", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Sends what is waiting and stops."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=1.0)  # nobody may be reading

    def _send(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return
                happened = self._queue.popleft()
            self._writer.send({"jsonrpc": "2.0", "method": "event", "params": happened})
