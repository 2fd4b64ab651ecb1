"""Events of a sandbox, for its listeners.

An event is a plain dict (`{"type": "exec", "timestamp": 1700000000.25, "exec": {…}}`), so that it goes over JSON-RPC
unchanged and `event["type"]` works in every language.
"""

from __future__ import annotations

import time
from _thread import allocate_lock as Lock  # `threading` is loaded later: see `wiring.py`

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Handler = Callable[[dict[str, object]], object]


def event(kind: str, /, **details: object) -> dict[str, object]:
    """An event of `kind` (network, file, exec_start, exec, lifecycle), stamped now, in seconds since 1970."""
    return {"type": kind, "timestamp": time.time(), kind: details}


class Events:
    """The listeners of one sandbox. Emitting from any thread is safe."""

    def __init__(self) -> None:
        self._handlers: tuple[Handler, ...] = ()
        self._lock = Lock()

    def subscribe(self, handler: Handler) -> Callable[[], None]:
        """Calls `handler` with every event from now on; returns a function that ends the subscription."""
        with self._lock:
            self._handlers = (*self._handlers, handler)

        def unsubscribe() -> None:
            with self._lock:
                self._handlers = tuple(one for one in self._handlers if one is not handler)

        return unsubscribe

    def emit(self, happened: dict[str, object]) -> None:
        """Calls every listener. An exception in a listener never reaches the sandbox."""
        for handler in self._handlers:
            try:
                handler(happened)
            except Exception as problem:  # noqa: BLE001 - a listener must not break the walls' bookkeeping
                import sys

                print(f"sandbox: an event handler raised {problem!r}", file=sys.stderr)
