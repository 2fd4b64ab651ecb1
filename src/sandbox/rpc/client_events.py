"""Delivers events to a client's handlers in a separate thread, so that a handler may call the sandbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandbox.events import Events
from sandbox.rpc.event_queue import EventQueue


class ClientEvents:
    """Calls handlers with one event after another. Drops events until somebody has subscribed."""

    def __init__(self) -> None:
        self._handlers = Events()
        self._queue = EventQueue(self._handlers.emit, "sandbox-client-events")
        self._subscribed = False

    def subscribe(self, handler: Callable[[dict[str, Any]], object]) -> Callable[[], None]:
        """Calls `handler` with every event from now on. Returns a function that ends this."""
        self._subscribed = True
        return self._handlers.subscribe(handler)

    def emit(self, happened: dict[str, Any]) -> None:
        """Queues an event, if anybody has subscribed. Returns at once."""
        if self._subscribed:
            self._queue.put(happened)

    def close(self) -> None:
        """Takes no more events; handlers still get those that are queued."""
        self._queue.close()
