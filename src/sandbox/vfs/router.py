"""Several providers in one tree, by path."""

from __future__ import annotations

import errno
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox.vfs.provider import (
    WRITING,
    Changes,
    DirEntry,
    FileInfo,
    Handle,
    Provider,
    Space,
    clean,
    failure,
    join,
    split,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Unpack

    from sandbox.vfs.provider import Guard

INO_MASK = (1 << 64) - 1


class _Nothing(Provider):
    """The root if no provider is mounted there: an empty directory that stays empty."""

    readonly = True

    def stat(self, path: str) -> FileInfo:
        if path == "/":
            return FileInfo(mode=stat.S_IFDIR | 0o755, nlink=2, ino=1)
        raise failure(errno.ENOENT, path)

    def readdir(self, path: str) -> list[DirEntry]:
        return []

    def open(self, path: str, flags: int, mode: int = 0) -> Handle:
        raise failure(errno.EISDIR if path == "/" else errno.ENOENT, path)


class MountRouter(Provider):
    """Routes each path to the provider with the longest matching prefix. A mount point cannot be removed or renamed;
    directories on the way to one exist by themselves."""

    def __init__(self, mounts: Mapping[str, Provider]) -> None:
        routes = {clean(place): provider for place, provider in mounts.items()}
        routes.setdefault("/", _Nothing())
        # Longest first, so that the first match is the right one.
        self._routes = sorted(routes.items(), key=lambda route: len(route[0]), reverse=True)
        # Directory -> names in it that are mount points or lead to one.
        self._fixed: dict[str, set[str]] = {}
        for place in routes:
            while place != "/":
                parent, name = split(place)
                self._fixed.setdefault(parent, set()).add(name)
                place = parent
        providers = list(routes.values())
        real = [one for one in providers if not isinstance(one, _Nothing)]
        self.readonly = all(one.readonly for one in providers)
        self.cache_seconds = min((one.cache_seconds for one in real), default=1.0)
        self.writeback = all(one.writeback for one in real)
        self.keep_cache = all(one.keep_cache for one in real)
        self.xattrs = any(one.xattrs for one in real)
        self.flushes = any(one.flushes for one in real)

    def stat(self, path: str) -> FileInfo:
        index, provider, inside = self._route(path)
        try:
            return self._numbered(provider.stat(inside), index)
        except (FileNotFoundError, NotADirectoryError):
            if path in self._fixed:
                return FileInfo(mode=stat.S_IFDIR | 0o755, nlink=2)
            raise

    def readdir(self, path: str) -> list[DirEntry]:
        index, provider, inside = self._route(path)
        fixed = self._fixed.get(path, set())
        found = []
        try:
            for entry in provider.readdir(inside):
                if entry.name not in fixed:
                    found.append(DirEntry(entry.name, entry.info and self._numbered(entry.info, index)))
        except (FileNotFoundError, NotADirectoryError):
            if not fixed:
                raise
        return found + [DirEntry(name, self.stat(join(path, name))) for name in sorted(fixed)]

    def open(self, path: str, flags: int, mode: int = 0) -> Handle:
        _, provider, inside = self._route(path)
        if flags & WRITING:
            _refuse_readonly(provider, path)
        return provider.open(inside, flags, mode)

    def create(self, path: str, mode: int) -> Handle:
        _, provider, inside = self._changeable(path)
        return provider.create(inside, mode)

    def mkdir(self, path: str, mode: int) -> None:
        _, provider, inside = self._changeable(path, taken=errno.EEXIST)
        provider.mkdir(inside, mode)

    def remove(self, path: str) -> None:
        _, provider, inside = self._changeable(path)
        provider.remove(inside)

    def rename(self, old: str, new: str) -> None:
        source, provider, inside = self._changeable(old)
        target, _, to = self._changeable(new)
        if source != target:
            raise failure(errno.EXDEV, new)
        provider.rename(inside, to)

    def symlink(self, target: str, link: str) -> None:
        _, provider, inside = self._changeable(link)
        provider.symlink(target, inside)

    def readlink(self, path: str) -> str:
        _, provider, inside = self._route(path)
        return provider.readlink(inside)

    def link(self, path: str, new: str) -> None:
        source, provider, inside = self._changeable(path)
        target, _, to = self._changeable(new)
        if source != target:
            raise failure(errno.EXDEV, new)
        provider.link(inside, to)

    def mknod(self, path: str, mode: int) -> None:
        _, provider, inside = self._changeable(path)
        provider.mknod(inside, mode)

    def setattr(self, path: str, **changes: Unpack[Changes]) -> None:
        _, provider, inside = self._route(path)
        _refuse_readonly(provider, path)
        provider.setattr(inside, **changes)

    def statfs(self) -> Space:
        return self._routes[-1][1].statfs()

    def getxattr(self, path: str, name: str) -> bytes:
        _, provider, inside = self._route(path)
        return provider.getxattr(inside, name)

    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None:
        _, provider, inside = self._route(path)
        _refuse_readonly(provider, path)
        provider.setxattr(inside, name, value, flags)

    def listxattr(self, path: str) -> list[str]:
        _, provider, inside = self._route(path)
        return provider.listxattr(inside)

    def removexattr(self, path: str, name: str) -> None:
        _, provider, inside = self._route(path)
        _refuse_readonly(provider, path)
        provider.removexattr(inside, name)

    def guard(self, rules: Callable[[str], Guard]) -> None:
        for _, provider in self._routes:
            provider.guard(rules)

    def close(self) -> None:
        for _, provider in self._routes:
            provider.close()

    def _route(self, path: str) -> tuple[int, Provider, str]:
        for index, (place, provider) in enumerate(self._routes):
            if place == "/":
                return index, provider, path
            if path == place:
                return index, provider, "/"
            if path.startswith(place + "/"):
                return index, provider, path[len(place) :]
        raise AssertionError("the root has a route")

    def _changeable(self, path: str, *, taken: int = errno.EBUSY) -> tuple[int, Provider, str]:
        parent, name = split(path)
        if name in self._fixed.get(parent, ()):
            raise failure(taken, path)
        found = self._route(path)
        _refuse_readonly(found[1], path)
        return found

    def _numbered(self, info: FileInfo, index: int) -> FileInfo:
        """Keeps the inode numbers of two providers apart."""
        if not info.ino:
            return info
        return replace(info, ino=(info.ino * len(self._routes) + index) & INO_MASK)


def _refuse_readonly(provider: Provider, path: str) -> None:
    if provider.readonly:
        raise failure(errno.EROFS, path)
