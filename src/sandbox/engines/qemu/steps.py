"""A progress bar for work that takes seconds and is done once. Shows nothing unless stderr is a terminal."""

from __future__ import annotations

import sys

WIDTH = 20


class Steps:
    """`count` steps of a task named `what`."""

    def __init__(self, what: str, count: int) -> None:
        self._what = what
        self._count = count
        self._at = 0
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._draw()

    def next(self) -> None:
        """One more step is done."""
        self._at += 1
        self._draw()

    def done(self) -> None:
        """Removes the bar."""
        self._write("\r\033[K")

    def _draw(self) -> None:
        full = WIDTH * self._at // self._count
        self._write(f"\rsandbox: {self._what} [{'#' * full}{'.' * (WIDTH - full)}]")

    def _write(self, text: str) -> None:
        if self._shown:
            try:
                sys.stderr.write(text)
                sys.stderr.flush()
            except (OSError, ValueError):
                self._shown = False
