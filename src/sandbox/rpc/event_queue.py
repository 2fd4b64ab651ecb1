"""Delivers events to a receiver that may be slow: a bounded queue, and a thread that empties it."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from threading import Condition, Thread
from typing import Any

from sandbox.events import event

_WAITING = 4096


class EventQueue:
    """Calls `deliver` with one event after another, in its own thread, which starts with the first event.

    When `deliver` is too slow, events are lost, and an event says how many. The sender is never slowed down.
    """

    def __init__(self, deliver: Callable[[dict[str, Any]], object], name: str) -> None:
        """`name` is the thread's."""
        self._deliver = deliver
        self._name = name
        self._queue: deque[dict[str, Any]] = deque()
        self._lost = 0
        self._changed = Condition()
        self._thread: Thread | None = None
        self._closed = False
        self._delivering: dict[str, Any] | None = None

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
                self._thread = Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def settle(self, types: Collection[str], patience: float) -> None:
        """Waits until no event of these types is on its way any more, at most `patience` seconds."""
        until = time.monotonic() + patience
        with self._changed:
            while self._has(types) and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)

    def _has(self, types: Collection[str]) -> bool:
        waiting = self._queue if self._delivering is None else (self._delivering, *self._queue)
        return any(one["type"] in types for one in waiting)

    def close(self, patience: float = 0.0) -> None:
        """Takes no more events. Queued events are still delivered; waits at most `patience` seconds for that."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and patience:
            thread.join(patience)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return
                happened = self._delivering = self._queue.popleft()
            try:
                self._deliver(happened)
            except Exception:  # noqa: BLE001 - whatever it was, it is reported, and later events are delivered
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
            with self._changed:
                self._delivering = None
                self._changed.notify_all()
