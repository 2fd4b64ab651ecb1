"""The thread that ends questions whose time is over."""

from __future__ import annotations

from threading import Thread, current_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Condition


class Timer:
    """Calls `expire` when a question may have timed out; `expire` returns when the next one will, by `clock`.

    `changed` is notified when a question begins or ends. `waiting`, called under its lock, says whether any waits.
    """

    def __init__(
        self,
        changed: Condition,
        expire: Callable[[], float | None],
        waiting: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._changed = changed
        self._expire = expire
        self._waiting = waiting
        self._clock = clock
        self._thread: Thread | None = None
        self._closed = False

    def start(self) -> None:
        """Call it under the lock. Idempotent."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="sandbox-asks", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                until = self._expire()
            except Exception:  # noqa: BLE001 - they were refused, if not recorded; others will need the timer
                until = None
            with self._changed:
                if self._closed:
                    return
                if until is None and not self._waiting():
                    self._changed.wait()
                else:
                    self._changed.wait(max(0.0, until - self._clock()) if until is not None else 0.1)

    def close(self) -> None:
        """Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join(1.0)
