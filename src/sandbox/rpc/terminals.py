"""Terminals of a sandbox: one client's, or kept under a name so that people can leave and come back."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from threading import Condition, Lock, Thread
from typing import TYPE_CHECKING

from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from sandbox.guest.process import Process
    from sandbox.result import ExecResult

_REMEMBERED = 64 * 1024  # bytes of output that somebody who joins sees at once
_WAITING = 4 * 2**20  # bytes a slow watcher may be behind before the terminal waits for it


class Terminal:
    """A command on a terminal, and whoever watches it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._ended = False
        self._failed: SandboxError | None = None
        self._changed = Condition()
        self._recent: deque[bytes] = deque()
        self._recent_size = 0
        self._watchers: list[deque[bytes]] = []
        assert process.terminal is not None
        self._keyboard = os.dup(process.terminal)
        Thread(target=self._read, name="sandbox-terminal", daemon=True).start()

    @property
    def ended(self) -> bool:
        return self._ended

    def watch(self, show: Callable[[bytes], None], leaves: Callable[[], bool]) -> ExecResult | None:
        """Shows what was printed lately and everything from now on, until the command ends. None: the watcher left.

        Raises SandboxError when the sandbox ended under it.
        """
        mine: deque[bytes] = deque()
        with self._changed:
            mine.extend(self._recent)
            self._watchers.append(mine)
        try:
            while True:
                with self._changed:
                    while not mine and not self._ended and not leaves():
                        self._changed.wait()
                    pieces = list(mine)
                    mine.clear()
                    self._changed.notify_all()
                if leaves():
                    return None
                if not pieces and self._failed is not None:
                    raise self._failed
                if not pieces:
                    return self.process.result
                show(b"".join(pieces))
        finally:
            with self._changed:
                self._watchers = [one for one in self._watchers if one is not mine]
                self._changed.notify_all()

    def keyboard(self) -> int:
        """A descriptor of the caller's own to type on; when the command has ended, one where it goes nowhere."""
        with self._changed:
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC) if self._ended else os.dup(self._keyboard)

    def wake(self) -> None:
        """Has every watcher ask again whether it leaves."""
        with self._changed:
            self._changed.notify_all()

    def _read(self) -> None:
        try:
            for piece in self.process.chunks():
                with self._changed:
                    self._remember(piece.data)
                    for watcher in self._watchers:
                        watcher.append(piece.data)
                    self._changed.notify_all()
                    while any(sum(map(len, watcher)) > _WAITING for watcher in self._watchers):
                        self._changed.wait()
        except SandboxError as problem:
            self._failed = problem
        finally:
            with self._changed:
                self._ended = True
                os.close(self._keyboard)
                self._changed.notify_all()
            self.process.close()

    def _remember(self, piece: bytes) -> None:
        self._recent.append(piece)
        self._recent_size += len(piece)
        while self._recent_size > _REMEMBERED and len(self._recent) > 1:
            self._recent_size -= len(self._recent.popleft())


class Terminals:
    """The kept terminals of one sandbox, by name."""

    def __init__(self) -> None:
        self._kept: dict[str, Terminal] = {}
        self._lock = Lock()

    def __bool__(self) -> bool:
        return any(not terminal.ended for terminal in self._kept.values())

    def join(self, name: str | None, start: Callable[[], Process]) -> tuple[Terminal, bool]:
        """The living terminal of that name and True, or a new one and False."""
        if name is None:
            return Terminal(start()), False
        with self._lock:
            kept = self._kept.get(name)
            if kept is not None and not kept.ended:
                return kept, True
            self._kept[name] = Terminal(start())
            return self._kept[name], False
