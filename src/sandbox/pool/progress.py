"""A bar that shows how far `Pool.map` is: on a terminal, with `rich` where it is installed; else nothing."""

from __future__ import annotations

import sys
from collections.abc import Sized
from threading import Lock
from typing import Any

from sandbox.i18n import _


class Bar:
    """Counts items, and how many of them failed. Safe to use from many threads."""

    def __init__(self, items: object, wanted: bool | None, *, stream: Any = None) -> None:
        """`wanted` None shows it only on a terminal."""
        out = stream if stream is not None else sys.stderr
        self._lock = Lock()
        self._failed = 0
        self._bar: Any = None
        if out is None or wanted is False or (wanted is None and not out.isatty()):
            return
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        except ImportError:
            return
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(file=out), transient=True)
        self._task = self._bar.add_task("", total=len(items) if isinstance(items, Sized) else None)
        self._bar.start()

    def done(self, ok: bool) -> None:
        """Counts one more item that has ended."""
        with self._lock:
            if self._bar is None:
                return
            self._failed += not ok
            said = _("{count} failed").format(count=self._failed) if self._failed else ""
            self._bar.update(self._task, advance=1, description=said)

    def close(self) -> None:
        """Takes the bar away. Idempotent."""
        with self._lock:
            bar, self._bar = self._bar, None
        if bar is not None:
            bar.stop()
