"""A person at a terminal who starts `sandbox` there: what they type and what they see."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

from tests.sandboxes import program


class Person:
    def __init__(self, *words: str, cwd: Path | None = None, typed: str = "", **env: str) -> None:
        """`typed` has been typed, whole, before `sandbox` starts."""
        self.seen = ""
        self._terminal, theirs = pty.openpty()
        self.types(typed)
        self._process = subprocess.Popen(
            [*program(), *words],
            cwd=cwd,
            env={**os.environ, **env},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> Person:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
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
        return self._process.wait()
