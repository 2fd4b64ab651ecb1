"""A provider that keeps its files in this process's memory."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from sandbox.vfs.memory_inode import INODE_COST, NAME_COST, Inode, xattrs_cost
from sandbox.vfs.memory_tree import MemoryTree
from sandbox.vfs.provider import Changes, DirEntry, FileInfo, Handle, Provider, Space, failure, now_ns, split

if TYPE_CHECKING:
    from typing import Unpack

DEFAULT_SIZE = 2**30
XATTR_MAX = 64 * 1024


class _MemoryHandle(Handle):
    __slots__ = ("_inode", "_owner")

    def __init__(self, owner: MemoryProvider, inode: Inode) -> None:
        self._owner = owner
        self._inode = inode

    def read(self, size: int, offset: int) -> memoryview:
        return memoryview(self._inode.data)[offset : offset + size]  # not copied here: the kernel copies it once

    def write(self, data: memoryview, offset: int) -> int:
        return self._owner._write(self._inode, data, offset)

    def stat(self) -> FileInfo:
        return self._inode.info()

    def setattr(self, **changes: Unpack[Changes]) -> None:
        self._owner._change(self._inode, changes)

    def close(self) -> None:
        self._owner._released(self._inode)


class MemoryProvider(MemoryTree, Provider):
    """An empty tree in memory, at most `size` bytes large."""

    keep_cache = True
    xattrs = True

    def __init__(self, *, size: int = DEFAULT_SIZE) -> None:
        super().__init__(size)

    def stat(self, path: str) -> FileInfo:
        return self._find(path).info()

    def readdir(self, path: str) -> list[DirEntry]:
        with self._lock:
            return [DirEntry(name, inode.info()) for name, inode in self._directory(path).items()]

    def open(self, path: str, flags: int, mode: int = 0) -> Handle:
        with self._lock:
            inode = self._find(path)
            if isinstance(inode.content, dict):
                raise failure(errno.EISDIR, path)
            if not isinstance(inode.content, bytearray):
                raise failure(errno.ELOOP if stat.S_ISLNK(inode.mode) else errno.ENXIO, path)
            if flags & os.O_TRUNC:
                self._resize(inode, 0)
            return self._opened(inode)

    def create(self, path: str, mode: int) -> Handle:
        with self._lock:
            inode = self._add(path, stat.S_IFREG | (mode & 0o7777), bytearray())
            return self._opened(inode)

    def mkdir(self, path: str, mode: int) -> None:
        with self._lock:
            self._add(path, stat.S_IFDIR | (mode & 0o7777), {})
            self._find(split(path)[0]).nlink += 1

    def symlink(self, target: str, link: str) -> None:
        with self._lock:
            self._add(link, stat.S_IFLNK | 0o777, os.fsencode(target).decode("utf-8", "surrogateescape"))

    def mknod(self, path: str, mode: int) -> None:
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            raise failure(errno.EPERM, path)
        with self._lock:
            self._add(path, mode, "")

    def readlink(self, path: str) -> str:
        inode = self._find(path)
        if not stat.S_ISLNK(inode.mode):
            raise failure(errno.EINVAL, path)
        assert isinstance(inode.content, str)
        return inode.content

    def link(self, path: str, new: str) -> None:
        with self._lock:
            inode = self._find(path)
            if isinstance(inode.content, dict):
                raise failure(errno.EPERM, path)
            parent, name = split(new)
            names = self._directory(parent)
            if name in names:
                raise failure(errno.EEXIST, new)
            self._take(NAME_COST)
            names[name] = inode
            inode.nlink += 1
            inode.ctime_ns = now_ns()
            self._find(parent).changed()

    def remove(self, path: str) -> None:
        with self._lock:
            parent, name = split(path)
            names = self._directory(parent)
            inode = names.get(name)
            if inode is None:
                raise failure(errno.ENOENT if name else errno.EBUSY, path)
            if inode.content and isinstance(inode.content, dict):
                raise failure(errno.ENOTEMPTY, path)
            del names[name]
            self._unlinked(inode, self._find(parent))

    def rename(self, old: str, new: str) -> None:
        with self._lock:
            (old_parent, old_name), (new_parent, new_name) = split(old), split(new)
            source, target = self._directory(old_parent), self._directory(new_parent)
            inode = source.get(old_name)
            if inode is None:
                raise failure(errno.ENOENT, old)
            if isinstance(inode.content, dict) and (new + "/").startswith(old + "/") and old != new:
                raise failure(errno.EINVAL, new)
            replaced = target.get(new_name)
            if replaced is inode:
                return
            if replaced is not None:
                self._check_replaceable(inode, replaced, new)
                self._unlinked(replaced, self._find(new_parent))
            target[new_name] = inode
            del source[old_name]
            if isinstance(inode.content, dict):
                self._find(old_parent).nlink -= 1
                self._find(new_parent).nlink += 1
            inode.ctime_ns = now_ns()
            self._find(old_parent).changed()
            self._find(new_parent).changed()

    def setattr(self, path: str, **changes: Unpack[Changes]) -> None:
        self._change(self._find(path), changes)

    def statfs(self) -> Space:
        free = max(0, self._size - self._used)
        files = self._size // INODE_COST
        return Space(self._size, free, files, max(0, files - self._inodes))

    def getxattr(self, path: str, name: str) -> bytes:
        try:
            return (self._find(path).xattrs or {})[name]
        except KeyError:
            raise failure(errno.ENODATA, path) from None

    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None:
        with self._lock:
            inode = self._find(path)
            held = inode.xattrs or {}
            if flags == os.XATTR_CREATE and name in held:
                raise failure(errno.EEXIST, path)
            if flags == os.XATTR_REPLACE and name not in held:
                raise failure(errno.ENODATA, path)
            new = {**held, name: value}
            if xattrs_cost(new) > XATTR_MAX:
                raise failure(errno.ENOSPC, path)
            self._take(xattrs_cost(new) - xattrs_cost(held))
            inode.xattrs = new
            inode.ctime_ns = now_ns()

    def listxattr(self, path: str) -> list[str]:
        return list(self._find(path).xattrs or ())

    def removexattr(self, path: str, name: str) -> None:
        with self._lock:
            inode = self._find(path)
            if inode.xattrs is None or name not in inode.xattrs:
                raise failure(errno.ENODATA, path)
            self._used -= xattrs_cost({name: inode.xattrs.pop(name)})
            inode.ctime_ns = now_ns()

    # Filling it from the host, before or while it is mounted.

    def write_file(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        """Puts a file at `path`, and makes its parents if they do not exist."""
        data = content.encode() if isinstance(content, str) else content
        with self._lock:
            parent = split(path)[0]
            missing = []
            while parent != "/" and not self._exists(parent):
                missing.append(parent)
                parent = split(parent)[0]
            for directory in reversed(missing):
                self.mkdir(directory, 0o755)
            if self._exists(path):
                self.remove(path)
            handle = self.create(path, mode)
            try:
                handle.write(memoryview(data), 0)
            finally:
                handle.close()

    def read_file(self, path: str) -> bytes:
        content = self._find(path).content
        if not isinstance(content, bytearray):
            raise failure(errno.EISDIR if isinstance(content, dict) else errno.EINVAL, path)
        return bytes(content)

    # Everything below is called with the lock held, or reads one thing only.

    def _opened(self, inode: Inode) -> Handle:
        self._open[inode.ino] = self._open.get(inode.ino, 0) + 1
        return _MemoryHandle(self, inode)

    def _write(self, inode: Inode, data: memoryview, offset: int) -> int:
        with self._lock:
            self._take(max(0, offset + len(data) - len(inode.data)))
            inode.write(data, offset)
        return len(data)

    def _resize(self, inode: Inode, size: int) -> None:
        self._take(size - len(inode.data))
        inode.resize(size)

    def _change(self, inode: Inode, changes: Changes) -> None:
        with self._lock:
            if "size" in changes:
                self._resize(inode, changes["size"])
            if "mode" in changes:
                inode.mode = stat.S_IFMT(inode.mode) | (changes["mode"] & 0o7777)
            inode.uid = changes.get("uid", inode.uid)
            inode.gid = changes.get("gid", inode.gid)
            inode.atime_ns = changes.get("atime_ns", inode.atime_ns)
            inode.mtime_ns = changes.get("mtime_ns", inode.mtime_ns)
            inode.ctime_ns = now_ns()
