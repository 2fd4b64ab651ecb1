"""Reads a project's files as hostile input: by descriptor, never outside the project, never more than a bound.

A link within the project is followed (`CLAUDE.md` is often one to `AGENTS.md`); one that leads out counts as missing.
"""

from __future__ import annotations

import os
import stat
import sys
from itertools import islice
from typing import Any

MOST_NAMES = 2_000  # of one directory
LARGEST = 2**22  # bytes of a file: enough to see which hosts a lock file names
MOST_BYTES = 2**26  # of all files together
LARGEST_JSON = 2**20
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # not blocking: it may be a FIFO


class Project:
    """One project's directory, open. A context manager."""

    def __init__(self, directory: str) -> None:
        self.directory = os.path.abspath(directory)
        self._left = MOST_BYTES
        self._root = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Project:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    def names(self, directory: str = ".") -> list[str]:
        """The names in a directory, sorted; only some of a huge one. Empty when it is not there."""
        try:
            fd = self._open(directory, os.O_DIRECTORY)
        except OSError:
            return []
        try:
            with os.scandir(fd) as entries:
                return sorted(entry.name for entry in islice(entries, MOST_NAMES))
        finally:
            os.close(fd)

    def has(self, path: str) -> bool:
        """Whether an ordinary file or a directory is at `path`, in the project."""
        return self._mode(path) is not None

    def is_directory(self, path: str) -> bool:
        return stat.S_ISDIR(self._mode(path) or 0)

    def text(self, path: str, most: int = LARGEST) -> str:
        """The first `most` bytes of an ordinary file; empty when there is none. What is not UTF-8 is replaced."""
        try:
            fd = self._open(path)
        except OSError:
            return ""
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return ""
            try:
                data = file.read(min(most, self._left))
            except OSError:
                return ""
        self._left -= len(data)
        return data.decode("utf-8", "replace")

    def json(self, path: str) -> dict[str, Any] | None:
        """A JSON object, also with whole-line comments as editors allow them; None when it cannot be read."""
        import json

        text = self.text(path, LARGEST_JSON + 1)
        if len(text) > LARGEST_JSON:
            return None
        lines = (line for line in text.splitlines() if not line.lstrip().startswith("//"))
        try:
            found = json.loads("\n".join(lines))
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def _mode(self, path: str) -> int | None:
        try:
            fd = self._open(path)
        except OSError:
            return None
        mode = os.fstat(fd).st_mode
        os.close(fd)
        return mode if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else None

    def _open(self, path: str, flags: int = 0) -> int:
        """Opens a path. Raises OSError, also when it leads out of the project."""
        if sys.platform != "linux":
            return self._open_step_by_step(path, flags)
        from sandbox.config.openat2 import BENEATH, NO_MAGICLINKS, openat2

        return openat2(self._root, os.fsencode(path), _FLAGS | flags, 0, BENEATH | NO_MAGICLINKS)

    def _open_step_by_step(self, path: str, flags: int) -> int:
        """For systems without openat2: follows no link at all."""
        at = os.dup(self._root)
        *above, name = path.split("/")
        try:
            for step in above:
                below = os.open(step, _FLAGS | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = below
            return os.open(name, _FLAGS | os.O_NOFOLLOW | flags, dir_fd=at)
        finally:
            os.close(at)
