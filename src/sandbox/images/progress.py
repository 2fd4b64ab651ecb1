"""Shows the progress of downloads: on a terminal, if `rich` is installed; else nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing import Self


class Progress(Protocol):
    """The progress of one download."""

    def at(self, done: int) -> None:
        """`done` bytes have been downloaded."""


class ShownProgress:
    """One line for each file: size, rate, time left."""

    def __init__(self, *, stream: Any = None) -> None:
        self._bar: Any = None
        out = stream if stream is not None else sys.stderr
        if out is None or not out.isatty():
            return
        try:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
            from rich.progress import Progress as Bar
        except ImportError:
            return
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bar = Bar(*columns, TimeRemainingColumn(), console=Console(file=out), transient=True)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def file(self, name: str, size: int) -> Progress:
        """The line of one file. `name` is our own text, or has been validated."""
        if self._bar is None:
            return _Quiet()
        return _Line(self._bar, self._bar.add_task(name, total=size))


class _Quiet:
    def at(self, done: int) -> None:
        pass


class _Line:
    def __init__(self, bar: Any, task: Any) -> None:
        self._bar = bar
        self._task = task

    def at(self, done: int) -> None:
        self._bar.update(self._task, completed=done)
