"""One sandbox's questions. Light to import: most sandboxes never ask, and the rest is loaded when one does."""

from __future__ import annotations

from threading import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.asks.pending import Asks, OwnerChannel
    from sandbox.audit.record import Record
    from sandbox.events import Events
    from sandbox.info import Ask

_PATIENCE = 5.0  # seconds


class Asking:
    """Makes the table of questions when it is first needed. Refers to nothing that refers to the sandbox."""

    def __init__(self, sandbox: str, record: Record, events: Events, hooks: object | None) -> None:
        self._sandbox = sandbox
        self._record = record
        self._events = events
        self._hook = getattr(hooks, "on_ask", None)
        self._lock = Lock()
        self._asks: Asks | None = None
        self._watchers = 0
        self._closed = False

    def asks(self) -> Asks:
        """The questions, with the ways to answer that every sandbox has."""
        with self._lock:
            if self._asks is None:
                self._asks = self._made()
                if self._closed:
                    self._asks.close()
            return self._asks

    def _made(self) -> Asks:
        import os

        from sandbox.asks.pending import Asks
        from sandbox.asks.stored_answers import keep, next_number
        from sandbox.asks.ways_to_ask import DesktopWay, HookWay, Watchers, notifier

        asks = Asks(self._sandbox, emit=self._events.emit, record=self._record.write, number=next_number, keep=keep)
        asks.add(Watchers(lambda: self._watchers))
        if self._hook is not None:
            asks.add(HookWay(asks, self._hook))
        program = notifier(os.environ)
        if program is not None:
            asks.add(DesktopWay(asks, program))
        return asks

    def add(self, way: OwnerChannel) -> Callable[[], None]:
        """See `Asks.add`."""
        return self.asks().add(way)

    def waiting(self) -> list[Ask]:
        """The questions that wait, the oldest first."""
        return [] if self._asks is None else [one.ask for one in self._asks.pending()]

    def answer(self, id: int, answer: str, by: str) -> None:
        """See `Asks.answer`."""
        if self._asks is None:
            from sandbox.asks.pending import not_waiting

            raise not_waiting(id)
        self._asks.answer(id, answer, by)

    def settle(self) -> None:
        """Waits a moment until the answers that were given are carried out and reported."""
        if self._asks is not None:
            self._asks.settle(_PATIENCE)

    def watch(self) -> Callable[[], None]:
        """Notes that somebody follows `ask` events and answers them. Returns a function that ends this."""
        with self._lock:
            self._watchers += 1
        left = False

        def leave() -> None:
            nonlocal left
            with self._lock:
                self._watchers -= not left
                left = True

        return leave

    def close(self) -> None:
        """Refuses everything that waits. Idempotent."""
        with self._lock:
            self._closed = True
            asks = self._asks
        if asks is not None:
            asks.close()
