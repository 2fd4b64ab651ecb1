"""A view of another provider that cannot be changed."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from sandbox.vfs.provider import FileInfo, Handle, Provider, failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sandbox.vfs.provider import DirEntry, Guard, Space

WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND | os.O_CREAT


class _ReadonlyHandle(Handle):
    """Passes reads on. The base class refuses the rest, whatever the wrapped handle could do."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def read(self, size: int, offset: int) -> bytes | bytearray | memoryview:
        return self._handle.read(size, offset)

    def stat(self) -> FileInfo:
        return self._handle.stat()

    def close(self) -> None:
        self._handle.close()


class ReadonlyProvider(Provider):
    """Passes on what reads and inherits the refusal (EROFS) of everything that changes, so that a method added to
    `Provider` later is refused too until somebody decides otherwise."""

    readonly = True

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.cache_seconds = provider.cache_seconds
        self.keep_cache = provider.keep_cache
        self.xattrs = provider.xattrs

    def stat(self, path: str) -> FileInfo:
        return self._provider.stat(path)

    def readdir(self, path: str) -> Iterable[DirEntry]:
        return self._provider.readdir(path)

    def open(self, path: str, flags: int, mode: int = 0) -> Handle:
        if flags & WRITING:
            raise failure(errno.EROFS, path)
        return _ReadonlyHandle(self._provider.open(path, flags, mode))

    def readlink(self, path: str) -> str:
        return self._provider.readlink(path)

    def statfs(self) -> Space:
        return self._provider.statfs()

    def getxattr(self, path: str, name: str) -> bytes:
        return self._provider.getxattr(path, name)

    def listxattr(self, path: str) -> list[str]:
        return self._provider.listxattr(path)

    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None:
        raise failure(errno.EROFS, path)

    def removexattr(self, path: str, name: str) -> None:
        raise failure(errno.EROFS, path)

    def symlink(self, target: str, link: str) -> None:
        raise failure(errno.EROFS, link)

    def link(self, path: str, new: str) -> None:
        raise failure(errno.EROFS, new)

    def mknod(self, path: str, mode: int) -> None:
        raise failure(errno.EROFS, path)

    def guard(self, rules: Callable[[str], Guard]) -> None:
        self._provider.guard(rules)

    def close(self) -> None:
        self._provider.close()
