"""The entries of an untrusted tar, read one after the other in bounded memory."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, BinaryIO

from sandbox.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADERS = 1 << 18  # the most bytes that may describe one entry
# What tarfile may raise for a malformed tar.
DAMAGED = (tarfile.TarError, ValueError, EOFError, OverflowError, RecursionError, LookupError, TypeError)


class _Headers:
    """A file that gives tarfile at most HEADERS bytes per entry: it would read a name of any length into memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.left = HEADERS

    def read(self, size: int = -1) -> bytes:
        self.left -= size
        if size < 0 or self.left < 0:
            raise tarfile.ReadError("an entry's description is too long")
        return self._file.read(size)

    def seek(self, at: int, whence: int = 0) -> int:
        return self._file.seek(at, whence)

    def tell(self) -> int:
        return self._file.tell()


def members(file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """The entries; the caller may seek in the file meanwhile. Raises ImageError."""
    headers = _Headers(file)
    try:
        archive = tarfile.TarFile(fileobj=headers, mode="r")  # type: ignore[arg-type]
        while True:
            headers.left = HEADERS
            member = archive.next()
            if member is None:
                return
            archive.members = []  # type: ignore[attr-defined] # it would keep every one in memory
            yield member
    except DAMAGED as problem:
        raise ImageError("the archive is damaged ({problem})", problem=ascii(str(problem))[:200]) from None
