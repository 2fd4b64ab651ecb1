"""Copy-on-write: reads come from `lower` until something is changed, changes go to `upper`.

One rule covers everything: a path that `whiteouts.py` calls hidden has no lower side, and neither has anything below
it. A hidden path with an upper directory is an *opaque directory*.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace
from threading import RLock
from typing import TYPE_CHECKING

from sandbox.vfs.copy_up import copy_up
from sandbox.vfs.provider import (
    Changes,
    DirEntry,
    FileInfo,
    Handle,
    Provider,
    Space,
    failure,
    info_or_none,
    join,
    split,
)
from sandbox.vfs.whiteouts import MARK, Whiteouts, is_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Unpack

    from sandbox.vfs.provider import Guard

INO_MASK = (1 << 64) - 1


class _OverlayHandle(Handle):
    """An open file that switches to the copy when its file is copied up, so that readers see what writers write."""

    __slots__ = ("_overlay", "inner", "path")

    def __init__(self, overlay: OverlayProvider, inner: Handle, path: str | None) -> None:
        self._overlay = overlay
        self.inner = inner
        self.path = path
        """Set while the file is still the lower one."""

    def read(self, size: int, offset: int) -> bytes | bytearray | memoryview:
        return self.inner.read(size, offset)

    def write(self, data: memoryview, offset: int) -> int:
        return self.inner.write(data, offset)

    def sync(self) -> None:
        self.inner.sync()

    def flush(self) -> None:
        self.inner.flush()

    def close(self) -> None:
        self._overlay._closed(self)
        self.inner.close()

    def stat(self) -> FileInfo:
        return _numbered(self._overlay._origins, self.inner.stat(), upper=self.path is None)

    def setattr(self, **changes: Unpack[Changes]) -> None:
        if self.path is not None:
            self._overlay._copy_up(self.path)
        self.inner.setattr(**changes)


class OverlayProvider(Provider):
    """`upper` over `lower`. `lower` is never changed, and nobody else may change it either."""

    def __init__(self, upper: Provider, lower: Provider) -> None:
        self._upper = upper
        self._lower = lower
        self._lock = RLock()
        self._hidden = Whiteouts(upper)
        # The lower inode number of what was copied up: a file keeps its number.
        self._origins: dict[int, int] = {}
        self._readers: dict[str, set[_OverlayHandle]] = {}
        self.writeback = upper.writeback
        self.keep_cache = upper.keep_cache and lower.keep_cache
        self.xattrs = upper.xattrs
        self.flushes = upper.flushes
        self.cache_seconds = min(upper.cache_seconds, lower.cache_seconds)

    def guard(self, rules: Callable[[str], Guard]) -> None:
        self._upper.guard(rules)
        self._lower.guard(rules)

    # Reading

    def stat(self, path: str) -> FileInfo:
        info = self._upper_info(path)
        if info is not None:
            return _numbered(self._origins, info, upper=True)
        return _numbered(self._origins, self._visible_lower(path), upper=False)

    def readdir(self, path: str) -> list[DirEntry]:
        with self._lock:
            upper = self._upper_info(path)
            if upper is None:
                self._visible_lower(path)
            elif not upper.is_dir:
                raise failure(errno.ENOTDIR, path)
            found: dict[str, DirEntry] = {}
            if upper is not None:
                for entry in self._upper.readdir(path):
                    if not entry.name.startswith(MARK):
                        found[entry.name] = self._entry(entry, upper=True)
            if self._lower_info(path) is not None:
                for entry in self._lower.readdir(path):
                    if entry.name not in found and join(path, entry.name) not in self._hidden:
                        found[entry.name] = self._entry(entry, upper=False)
            return list(found.values())

    def open(self, path: str, flags: int, mode: int = 0) -> Handle:
        writing = flags & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC)
        with self._lock:
            if self._upper_info(path) is None:
                regular = stat.S_ISREG(self._visible_lower(path).mode)
                if not writing or not regular:
                    handle = _OverlayHandle(self, self._lower.open(path, flags, mode), path)
                    self._readers.setdefault(path, set()).add(handle)
                    return handle
                self._copy_up(path, empty=bool(flags & os.O_TRUNC))
            return _OverlayHandle(self, self._upper.open(path, flags, mode), None)

    def readlink(self, path: str) -> str:
        return self._side(path).readlink(path)

    def statfs(self) -> Space:
        return self._upper.statfs()

    def getxattr(self, path: str, name: str) -> bytes:
        side = self._side(path)
        if not side.xattrs:
            raise failure(errno.ENODATA, path)
        return side.getxattr(path, name)

    def listxattr(self, path: str) -> list[str]:
        side = self._side(path)
        return side.listxattr(path) if side.xattrs else []

    # Changing

    def create(self, path: str, mode: int) -> Handle:
        with self._lock:
            self._make_room(path)
            return _OverlayHandle(self, self._upper.create(path, mode), None)

    def mkdir(self, path: str, mode: int) -> None:
        with self._lock:
            self._make_room(path)
            self._upper.mkdir(path, mode)

    def symlink(self, target: str, link: str) -> None:
        with self._lock:
            self._make_room(link)
            self._upper.symlink(target, link)

    def mknod(self, path: str, mode: int) -> None:
        with self._lock:
            self._make_room(path)
            self._upper.mknod(path, mode)

    def link(self, path: str, new: str) -> None:
        with self._lock:
            self._copy_up(path)
            self._make_room(new)
            self._upper.link(path, new)

    def remove(self, path: str) -> None:
        with self._lock:
            if self.stat(path).is_dir and self.readdir(path):
                raise failure(errno.ENOTEMPTY, path)
            self._take_away(path)

    def rename(self, old: str, new: str) -> None:
        with self._lock:
            self._need_directory(split(old)[0])
            self._need_directory(split(new)[0])
            moved = self.stat(old)
            if old == new:
                return
            if moved.is_dir and new.startswith(old + "/"):
                raise failure(errno.EINVAL, new)
            replaced = info_or_none(self, new)
            if replaced is not None:
                if replaced.is_dir != moved.is_dir:
                    raise failure(errno.EISDIR if replaced.is_dir else errno.ENOTDIR, new)
                if replaced.ino == moved.ino != 0 and not moved.is_dir:
                    return  # two names of one file: rename(2) does nothing
                if replaced.is_dir and self.readdir(new):
                    raise failure(errno.ENOTEMPTY, new)
            self._copy_tree_up(old)
            if replaced is not None and (replaced.is_dir or self._lower_info(new) is not None):
                self._take_away(new)
            else:
                _check_name(new)
                self._copy_up(split(new)[0])
            hide = self._lower_info(old) is not None
            self._hidden.drop_below(old)
            self._upper.rename(old, new)
            if hide:
                self._hidden.add(old)

    def setattr(self, path: str, **changes: Unpack[Changes]) -> None:
        with self._lock:
            self._copy_up(path)
            self._upper.setattr(path, **changes)

    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None:
        with self._lock:
            self._copy_up(path)
            self._upper.setxattr(path, name, value, flags)

    def removexattr(self, path: str, name: str) -> None:
        with self._lock:
            self._copy_up(path)
            self._upper.removexattr(path, name)

    def close(self) -> None:
        self._upper.close()
        self._lower.close()

    # The two sides

    def _upper_info(self, path: str) -> FileInfo | None:
        return None if is_mark(path) else info_or_none(self._upper, path)

    def _lower_info(self, path: str) -> FileInfo | None:
        """What the lower side shows at `path`, unless it is hidden there or above."""
        return None if self._hidden.cover(path) else info_or_none(self._lower, path)

    def _visible_lower(self, path: str) -> FileInfo:
        info = self._lower_info(path)
        if info is None:
            raise self._absence(path)
        return info

    def _absence(self, path: str) -> OSError:
        """The error for a `path` that does not exist: no such name, or a parent that is not a directory."""
        while path != "/":
            path = split(path)[0]
            info = self._upper_info(path) or self._lower_info(path)
            if info is not None:
                return failure(errno.ENOENT if info.is_dir else errno.ENOTDIR, path)
        return failure(errno.ENOENT, path)

    def _need_directory(self, path: str) -> None:
        if not self.stat(path).is_dir:
            raise failure(errno.ENOTDIR, path)

    def _side(self, path: str) -> Provider:
        if self._upper_info(path) is not None:
            return self._upper
        self._visible_lower(path)
        return self._lower

    def _entry(self, entry: DirEntry, *, upper: bool) -> DirEntry:
        return DirEntry(entry.name, entry.info and _numbered(self._origins, entry.info, upper=upper))

    # Copying up

    def _copy_up(self, path: str, *, empty: bool = False) -> None:
        with self._lock:
            if self._upper_info(path) is not None:
                return
            info = self._visible_lower(path)
            if path != "/":
                self._copy_up(split(path)[0])
            copy_up(self._lower, self._upper, path, info, empty=empty)
            made = self._upper.stat(path)
            if made.ino and info.ino and (info.nlink == 1 or info.is_dir):
                self._origins[made.ino] = info.ino * 2 & INO_MASK
            for reader in self._readers.pop(path, ()):
                old, reader.inner, reader.path = reader.inner, self._upper.open(path, os.O_RDWR), None
                old.close()

    def _copy_tree_up(self, path: str) -> None:
        self._copy_up(path)
        if self.stat(path).is_dir:
            for entry in self.readdir(path):
                self._copy_tree_up(join(path, entry.name))

    # Hiding

    def _make_room(self, path: str) -> None:
        """Checks that `path` is free and gives it an upper parent."""
        _check_name(path)
        if info_or_none(self, path) is not None:
            raise failure(errno.EEXIST, path)
        self._copy_up(split(path)[0])

    def _take_away(self, path: str) -> None:
        info = self._upper_info(path)
        if info is not None:
            if info.is_dir:
                for entry in list(self._upper.readdir(path)):  # only marks are left
                    self._upper.remove(join(path, entry.name))
            self._upper.remove(path)
        if self._lower_info(path) is not None:
            self._copy_up(split(path)[0])
            self._hidden.add(path)

    def _closed(self, handle: _OverlayHandle) -> None:
        with self._lock:
            if handle.path is not None:
                readers = self._readers.get(handle.path, set())
                readers.discard(handle)
                if not readers:
                    self._readers.pop(handle.path, None)


def _check_name(path: str) -> None:
    if is_mark(path):
        raise failure(errno.EPERM, path)


def _numbered(origins: Mapping[int, int], info: FileInfo, *, upper: bool) -> FileInfo:
    """Keeps inode numbers of both sides apart. A lower file with hard links has none: copying up separates them."""
    if not info.ino:
        return info
    if upper:
        ino = origins.get(info.ino, info.ino * 2 + 1)
    else:
        ino = 0 if info.nlink > 1 and not info.is_dir else info.ino * 2
    return replace(info, ino=ino & INO_MASK)
