"""The tree of a memory provider: files by path, and how much of its size they use."""

from __future__ import annotations

import errno
import stat
from threading import RLock

from sandbox.vfs.memory_inode import INODE_COST, NAME_COST, Inode
from sandbox.vfs.provider import failure, split


class MemoryTree:
    """A tree of files of at most `size` bytes. To change it, hold the lock."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self._inodes = 1
        self._last_ino = 1
        self._open: dict[int, int] = {}
        self._root = Inode(1, stat.S_IFDIR | 0o755, {})
        # Reentrant, so that a subclass may hold it over several calls.
        self._lock = RLock()

    def _exists(self, path: str) -> bool:
        try:
            self._find(path)
        except FileNotFoundError:
            return False
        return True

    def _find(self, path: str) -> Inode:
        inode = self._root
        if path == "/":
            return inode
        for name in path[1:].split("/"):
            if not isinstance(inode.content, dict):
                raise failure(errno.ENOTDIR, path)
            try:
                inode = inode.content[name]
            except KeyError:
                raise failure(errno.ENOENT, path) from None
        return inode

    def _directory(self, path: str) -> dict[str, Inode]:
        content = self._find(path).content
        if not isinstance(content, dict):
            raise failure(errno.ENOTDIR, path)
        return content

    def _add(self, path: str, mode: int, content: bytearray | dict[str, Inode] | str) -> Inode:
        parent, name = split(path)
        holder = self._find(parent)
        if not isinstance(holder.content, dict):
            raise failure(errno.ENOTDIR, path)
        if name in holder.content or not name:
            raise failure(errno.EEXIST, path)
        self._take(INODE_COST + len(content))
        self._last_ino += 1
        self._inodes += 1
        holder.content[name] = inode = Inode(self._last_ino, mode, content)
        holder.mtime_ns = holder.ctime_ns = inode.ctime_ns
        return inode

    def _take(self, size: int) -> None:
        if size > 0 and self._used + size > self._size:
            raise failure(errno.ENOSPC)
        self._used += size

    def _released(self, inode: Inode) -> None:
        with self._lock:
            left = self._open.pop(inode.ino) - 1
            if left:
                self._open[inode.ino] = left
            else:
                self._give_back(inode)

    def _unlinked(self, inode: Inode, parent: Inode) -> None:
        parent.changed()
        if isinstance(inode.content, dict):
            parent.nlink -= 1
            inode.nlink = 0
        else:
            inode.nlink -= 1
            if inode.nlink:
                self._used -= NAME_COST
        inode.ctime_ns = parent.ctime_ns
        self._give_back(inode)

    def _give_back(self, inode: Inode) -> None:
        """Frees a file that has no name and is not open."""
        if inode.nlink == 0 and inode.ino not in self._open:
            self._inodes -= 1
            self._used -= inode.cost()

    def _check_replaceable(self, inode: Inode, replaced: Inode, path: str) -> None:
        if isinstance(replaced.content, dict):
            if not isinstance(inode.content, dict):
                raise failure(errno.EISDIR, path)
            if replaced.content:
                raise failure(errno.ENOTEMPTY, path)
        elif isinstance(inode.content, dict):
            raise failure(errno.ENOTDIR, path)
