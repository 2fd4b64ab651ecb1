"""A person at a terminal with a program that draws: what is on the screen, whatever escape sequences drew it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

from tests.sandboxes import program

ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])|[\x00-\x08\x0b-\x1f]"
)
# Seconds until a program that shows nothing counts as stuck.
PATIENCE = float(os.environ.get("SANDBOX_PATIENCE", "90"))


class Screen:
    """Starts `sandbox words…` in a terminal of 120 columns."""

    def __init__(self, *words: str, cwd: Path, env: dict[str, str]) -> None:
        self.drawn = ""
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.process = subprocess.Popen(
            [*program(), *words], cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        os.close(self._terminal)

    def types(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    @property
    def text(self) -> str:
        """Everything that was drawn, without escape sequences and blanks: programs move the cursor where others write
        a space."""
        return re.sub(r"\s+", "", ESCAPES.sub("", self.drawn))

    def sees(self, *texts: str, since: int = 0) -> str:
        """Waits until one of the texts has been drawn, and returns it."""
        end = time.monotonic() + PATIENCE
        while True:
            for text in texts:
                if re.sub(r"\s+", "", text) in self.text[since:]:
                    return text
            if not self._reads(end):
                raise AssertionError(f"never saw {texts}; saw: {self.text[-3000:]}")

    def ends(self, keys: str) -> int:
        """Types the keys, as often as a person would, until it ends; returns how it ended."""
        self.presses(keys, lambda: self.process.poll() is not None, 0.5)
        return self.process.wait()

    def presses(self, keys: str, done: Callable[[], bool], pause: float) -> None:
        """Types the keys until `done`. A program that is still drawing may not take them the first time."""
        end = time.monotonic() + PATIENCE
        while not done():
            self.types(keys)
            soon = time.monotonic() + pause
            while not done() and self._reads(soon):
                pass
            if time.monotonic() > end:
                raise AssertionError(f"{keys!r} has no effect; saw: {self.text[-3000:]}")

    def _reads(self, end: float) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return False
        try:
            piece = os.read(self._terminal, 65536).decode(errors="replace")
        except OSError:
            return False  # the other side is closed
        self.drawn += piece
        if "\x1b[6n" in piece:
            self.types("\x1b[1;1R")  # as a terminal answers where its cursor is
        if "\x1b[c" in piece:
            self.types("\x1b[?62;c")
        return bool(piece)
