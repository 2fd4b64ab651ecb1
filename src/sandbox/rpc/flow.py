"""Flow control: how much output a client is ready to take.

A client sets its window in the request (`credit`) and grants more as its own reader consumes output (`more`). When the
window is used up, the server stops reading the command's output, so the command itself waits. Without a window, only
the connection's own back-pressure applies.
"""

from __future__ import annotations

from threading import Condition

_MOST = 2**62


class Credit:
    """Bytes that may still be sent for one request."""

    def __init__(self) -> None:
        self._left: int | None = None  # None: no window
        self._closed = False
        self._changed = Condition()

    def start(self, window: int | None) -> None:
        """Sets the window; None means no limit."""
        with self._changed:
            self._left = window

    def add(self, size: int) -> None:
        """Grants `size` more bytes."""
        with self._changed:
            if self._left is not None:
                self._left = min(self._left + size, _MOST)
                self._changed.notify_all()

    def take(self, most: int) -> int:
        """Waits for credit and takes up to `most` bytes of it. Returns `most` without a window, 0 after `close`."""
        with self._changed:
            while self._left == 0 and not self._closed:
                self._changed.wait()
            if self._closed:
                return 0
            if self._left is None:
                return most
            taken = min(most, self._left)
            self._left -= taken
            return taken

    def close(self) -> None:
        """Wakes the threads that wait for credit: nothing more will be sent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
