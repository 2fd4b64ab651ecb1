"""An open directory: a provider's listing, in the portions that the kernel asks for."""

from __future__ import annotations

import errno
import os
from threading import Lock
from typing import TYPE_CHECKING

from sandbox.vfs.fuse import structs
from sandbox.vfs.provider import NAME_MAX, DirEntry, FileInfo, failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sandbox.vfs.fuse.nodes import Node

# A directory with more names than this counts as endless.
MAX_ENTRIES = 1_000_000

DIRECTORY_KIND = 0o040000 >> 12


class Directory:
    """One reading of a directory. Entries come from the provider as they are needed, and are kept for `seekdir`."""

    def __init__(self, node: Node, listing: Callable[[], Iterable[DirEntry]]) -> None:
        self.node = node
        self._listing = listing
        self._lock = Lock()
        self._entries: list[DirEntry] = []
        self._source: Iterator[DirEntry] | None = None

    def read(self, offset: int, size: int, found: Callable[[str, FileInfo | None], bytes] | None = None) -> bytes:
        """Entries from the one at `offset` on, as many as fit `size`; with `found` each with its attributes."""
        with self._lock:
            if offset == 0 or self._source is None:  # rewinddir shows what is there now
                self._rewind()
            out = bytearray()
            extra = structs.ENTRY.size + structs.ATTR.size if found else 0
            for at, (name, entry) in enumerate(self._from(offset), offset + 1):
                padded = (len(name) + 7) & ~7
                if len(out) + extra + structs.DIRENT.size + padded > size:
                    break
                info = entry.info if entry else None
                if found:
                    out += found(entry.name, info) if entry else bytes(extra)
                kind = (info.mode & 0o170000) >> 12 if info else 0 if entry else DIRECTORY_KIND
                # The number must not be 0; the real one comes with the attributes.
                number = (info.ino if info else 0) or 1
                out += structs.DIRENT.pack(number, at, len(name), kind) + name + bytes(padded - len(name))
            return bytes(out)

    def close(self) -> None:
        close = getattr(self._source, "close", None)
        if close is not None:
            close()

    def _rewind(self) -> None:
        self.close()
        self._entries = []
        self._source = iter(self._listing())

    def _from(self, offset: int) -> Iterator[tuple[bytes, DirEntry | None]]:
        for dots in (b".", b"..")[offset:]:
            yield dots, None
        at = max(0, offset - 2)
        while self._have(at):
            yield _checked(self._entries[at].name), self._entries[at]
            at += 1

    def _have(self, at: int) -> bool:
        assert self._source is not None
        while len(self._entries) <= at:
            if at >= MAX_ENTRIES:
                raise failure(errno.EIO)  # not EOVERFLOW: `ls` would try for ever
            entry = next(self._source, None)
            if entry is None:
                return False
            self._entries.append(entry)
        return True


def _checked(name: str) -> bytes:
    """The name for the kernel. Raises OSError if the kernel would refuse it: it would not say which name it was."""
    encoded = os.fsencode(name)
    if not encoded or len(encoded) > NAME_MAX or name in (".", "..") or b"/" in encoded or b"\0" in encoded:
        raise failure(errno.EIO)
    return encoded
