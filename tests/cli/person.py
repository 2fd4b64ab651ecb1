"""A person at a terminal who starts `sandbox` there: what they type and what they see."""

from __future__ import annotations

import os
import pty
import signal
import sys
from pathlib import Path

from tests.sandboxes import program


class Person:
    def __init__(self, *words: str, cwd: Path | None = None, typed: str = "", **env: str) -> None:
        """`typed` has been typed, whole, before `sandbox` starts."""
        self.seen = ""
        self._status: int | None = None
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(cwd or ".")
            if typed:
                assert os.read(0, 1) == b"\n"
            os.execve(sys.executable, [*program(), *words], {**os.environ, **env})
        if typed:
            self.types(f"\n{typed}")

    def __enter__(self) -> Person:
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is None:
            os.kill(self._pid, signal.SIGKILL)
            self.status()
        os.close(self._terminal)

    def types(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def sees(self, text: str) -> bool:
        """True when `text` has been shown; raises OSError when all has ended without it."""
        while text not in self.seen:
            self.seen += os.read(self._terminal, 65536).decode(errors="replace")
        return True

    def status(self) -> int:
        """Sees everything to the end; how it ended."""
        try:
            while piece := os.read(self._terminal, 65536):
                self.seen += piece.decode(errors="replace")
        except OSError:
            pass  # the other side is closed
        self._status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._status
