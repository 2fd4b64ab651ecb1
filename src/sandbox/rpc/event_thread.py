"""Events on their way to a client's handlers: in a thread of their own, so that a handler may ask the sandbox."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import Any

from sandbox.events import Events, event

_WAITING = 4096


class EventThread:
    """Calls handlers one event after the other. A handler that is slow loses events, and is told how many."""

    def __init__(self) -> None:
        self._events = Events()
        self._queue: deque[dict[str, Any]] = deque()
        self._lost = 0
        self._changed = Condition()
        self._thread: Thread | None = None
        self._closed = False

    def subscribe(self, handler: Callable[[dict[str, Any]], object]) -> Callable[[], None]:
        """Calls `handler` with every event from now on; returns what ends that."""
        with self._changed:
            if self._thread is None and not self._closed:
                self._thread = Thread(target=self._run, name="sandbox-client-events", daemon=True)
                self._thread.start()
        return self._events.subscribe(handler)

    def emit(self, happened: dict[str, Any]) -> None:
        """Queues it, if anybody listens. Returns at once."""
        with self._changed:
            if self._thread is None or self._closed:
                return
            if len(self._queue) >= _WAITING:
                self._lost += 1
                return
            if self._lost:
                self._queue.append(event("lifecycle", state="events_lost", count=self._lost))
                self._lost = 0
            self._queue.append(happened)
            self._changed.notify()

    def close(self) -> None:
        """Handlers get what is queued, and then nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return
                happened = self._queue.popleft()
            self._events.emit(happened)
