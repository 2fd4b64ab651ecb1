"""The log of a detached sandbox: what its commands print, in at most two files of a fixed size."""

from __future__ import annotations

import os
from threading import Thread

LIMIT = 8 * 2**20  # bytes per file; vm.log.1 is the previous one


class Log:
    """Copies a pipe into `path`, so that a tenant that never stops printing cannot fill the disk."""

    def __init__(self, path: str, limit: int = LIMIT) -> None:
        self._path = path
        self._limit = limit
        self._file = self._fresh()
        self._source, self.descriptor = os.pipe()  # programs print to `descriptor`
        self._copier = Thread(target=self._copy, name="sandbox-log", daemon=True)
        self._copier.start()

    def close(self) -> None:
        """Waits until everything printed so far is in the file."""
        os.close(self.descriptor)
        self._copier.join(timeout=1.0)  # somebody else may still hold the descriptor

    def _copy(self) -> None:
        while piece := os.read(self._source, 65536):
            try:
                self._add(piece)
            except OSError:
                pass  # the disk is full: the output is lost, but the program that prints must not block

    def _add(self, piece: bytes) -> None:
        if os.fstat(self._file).st_size + len(piece) > self._limit:
            os.rename(self._path, f"{self._path}.1")
            full, self._file = self._file, self._fresh()
            os.close(full)
        left = memoryview(piece)
        while left:
            left = left[os.write(self._file, left) :]

    def _fresh(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        os.fchmod(descriptor, 0o600)
        return descriptor
