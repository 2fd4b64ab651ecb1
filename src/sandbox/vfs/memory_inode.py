"""A file or directory of the memory provider: its attributes and content, and what it costs."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from sandbox.vfs.provider import FileInfo, failure, now_ns

if TYPE_CHECKING:
    from collections.abc import Callable

# What a file and each further hard link count towards the limit, so that empty files cannot fill the host's memory.
INODE_COST = 1024
NAME_COST = 512
# What Python needs for a name and a value, beyond their bytes.
XATTR_COST = 128


class Inode:
    """`content`: a file's bytes, a directory's names, or a link's target (empty for a fifo or socket)."""

    __slots__ = ("atime_ns", "content", "ctime_ns", "gid", "ino", "mode", "mtime_ns", "nlink", "uid", "xattrs")

    def __init__(self, ino: int, mode: int, content: bytearray | dict[str, Inode] | str) -> None:
        self.ino = ino
        self.mode = mode
        self.content = content
        self.nlink = 2 if isinstance(content, dict) else 1
        self.uid = self.gid = 0
        self.atime_ns = self.mtime_ns = self.ctime_ns = now_ns()
        self.xattrs: dict[str, bytes] | None = None

    def info(self) -> FileInfo:
        content = self.content
        size = 4096 if isinstance(content, dict) else len(content)
        return FileInfo(
            size, self.mode, self.mtime_ns, self.atime_ns, self.ctime_ns, self.nlink, self.uid, self.gid, self.ino
        )

    def changed(self) -> None:
        self.mtime_ns = self.ctime_ns = now_ns()

    @property
    def data(self) -> bytearray:
        """A regular file's content. Raises OSError (EISDIR, EINVAL) for anything else."""
        if not isinstance(self.content, bytearray):
            raise failure(errno.EISDIR if isinstance(self.content, dict) else errno.EINVAL)
        return self.content

    def write(self, data: memoryview, offset: int) -> None:
        """Puts `data` at `offset`, with zeros before it where the file ends earlier."""

        def put(content: bytearray) -> None:
            if offset > len(content):
                content.extend(bytes(offset - len(content)))
            content[offset : offset + len(data)] = data

        self._change(put)

    def resize(self, size: int) -> None:
        """Cuts the file, or adds zeros."""

        def set_length(content: bytearray) -> None:
            if size < len(content):
                del content[size:]
            else:
                content.extend(bytes(size - len(content)))

        self._change(set_length)

    def _change(self, change: Callable[[bytearray], None]) -> None:
        try:
            change(self.data)
        except BufferError:  # a reader holds a part of it, and keeps the old buffer
            self.content = bytearray(self.data)
            change(self.content)
        self.changed()

    def cost(self) -> int:
        """What it counts towards the limit, besides its further names."""
        size = 0 if isinstance(self.content, dict) else len(self.content)
        return INODE_COST + size + xattrs_cost(self.xattrs or {})


def xattrs_cost(xattrs: dict[str, bytes]) -> int:
    """What extended attributes count towards the limit."""
    return sum(XATTR_COST + len(name) + len(value) for name, value in xattrs.items())
