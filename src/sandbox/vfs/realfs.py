"""A provider for a host directory, for hooks or below an overlay. Without those a bind mount is faster."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandbox.vfs.open_beneath import opened, parent_of, reopen
from sandbox.vfs.provider import Changes, DirEntry, FileInfo, Handle, Provider, Space, failure, join, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Unpack

    from sandbox.vfs.provider import Guard

SOMEBODY_ELSE = 65534
XATTRS = "user."
WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
SET_ID = stat.S_ISUID | stat.S_ISGID


class _RealHandle(Handle):
    __slots__ = ("_fd", "_provider")

    def __init__(self, provider: RealFSProvider, fd: int) -> None:
        self._provider = provider
        self._fd = fd

    def read(self, size: int, offset: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def write(self, data: memoryview, offset: int) -> int:
        done = 0
        while done < len(data):
            done += os.pwrite(self._fd, data[done:], offset + done)
        return done

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)

    def stat(self) -> FileInfo:
        return self._provider._info(os.fstat(self._fd))

    def setattr(self, **changes: Unpack[Changes]) -> None:
        _change(self._fd, changes)


class RealFSProvider(Provider):
    """The tree below `host_path`. No symbolic link, `..` or race leads out of it; links are reported, not followed.

    Files of the user who runs this process belong to the tenant; those of others belong to nobody. Devices cannot be
    opened, and no file here can be made setuid. Only the `user.` extended attributes are there.
    """

    keep_cache = True
    xattrs = True

    def __init__(self, host_path: str) -> None:
        self._host_path = host_path
        self._rules: Guard | None = None
        self._root = os.open(host_path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._uid, self._gid = os.geteuid(), os.getegid()
        self._device = os.fstat(self._root).st_dev

    def guard(self, rules: Callable[[str], Guard]) -> None:
        self._rules = rules(self._host_path)

    def stat(self, path: str) -> FileInfo:
        self._reach(path)
        with opened(self._root, path) as fd:
            return self._shown(path, os.fstat(fd))

    def readdir(self, path: str) -> Iterator[DirEntry]:
        with self._place(path) as place:
            fd = reopen(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    try:
                        info = entry.stat(follow_symlinks=False)
                        yield DirEntry(entry.name, self._shown(join(path, entry.name), info))
                    except FileNotFoundError:  # removed on the host meanwhile
                        continue
        finally:
            os.close(fd)

    def open(self, path: str, flags: int, mode: int = 0) -> Handle:
        with self._place(path, changing=bool(flags & WRITING)) as place:
            kind = os.fstat(place).st_mode
            # Its type is checked before it is opened for I/O: merely opening a device or a fifo can have an effect.
            if not stat.S_ISREG(kind):
                raise failure(errno.EISDIR if stat.S_ISDIR(kind) else errno.ENXIO, path)
            # O_APPEND is left out: offsets are explicit, and the kernel would ignore them with it.
            return _RealHandle(self, reopen(place, flags & (os.O_ACCMODE | os.O_TRUNC)))

    def create(self, path: str, mode: int) -> Handle:
        self._may_change(path)
        with parent_of(self._root, path) as (parent, name):
            flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(name, flags, 0o600, dir_fd=parent)
        # The tenant's umask has been applied already; ours must not be.
        os.fchmod(fd, mode & 0o777)
        return _RealHandle(self, fd)

    def mkdir(self, path: str, mode: int) -> None:
        self._may_change(path)
        with parent_of(self._root, path) as (parent, name):
            os.mkdir(name, 0o700, dir_fd=parent)
            fd = os.open(name, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.fchmod(fd, mode & 0o1777)
        finally:
            os.close(fd)

    def remove(self, path: str) -> None:
        self._may_move(path)
        with parent_of(self._root, path) as (parent, name):
            try:
                os.unlink(name, dir_fd=parent)
            except IsADirectoryError:
                os.rmdir(name, dir_fd=parent)

    def rename(self, old: str, new: str) -> None:
        self._may_move(old)
        self._may_move(new)
        with parent_of(self._root, old) as (source, old_name), parent_of(self._root, new) as (target, new_name):
            os.rename(old_name, new_name, src_dir_fd=source, dst_dir_fd=target)

    def symlink(self, target: str, link: str) -> None:
        self._may_change(link)
        with parent_of(self._root, link) as (parent, name):
            os.symlink(target, name, dir_fd=parent)

    def readlink(self, path: str) -> str:
        with parent_of(self._root, path) as (parent, name):
            return os.readlink(name, dir_fd=parent)

    def link(self, path: str, new: str) -> None:
        self._may_move(path)
        self._may_change(new)
        with parent_of(self._root, path) as (source, old_name), parent_of(self._root, new) as (target, new_name):
            os.link(old_name, new_name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)

    def mknod(self, path: str, mode: int) -> None:
        self._may_change(path)
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            raise failure(errno.EPERM, path)
        with parent_of(self._root, path) as (parent, name):
            os.mknod(name, stat.S_IFMT(mode) | (mode & 0o777), dir_fd=parent)

    def setattr(self, path: str, **changes: Unpack[Changes]) -> None:
        with self._place(path, changing=True) as place:
            if stat.S_ISLNK(os.fstat(place).st_mode):
                self._change_link(path, changes)
            elif "size" in changes:
                fd = reopen(place, os.O_WRONLY | os.O_NONBLOCK)
                try:
                    _change(fd, changes)
                finally:
                    os.close(fd)
            else:
                _change(place, changes)

    def getxattr(self, path: str, name: str) -> bytes:
        with self._users_own(path, name) as place:
            return os.getxattr(place, name)

    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None:
        self._may_change(path)
        with self._users_own(path, name) as place:
            os.setxattr(place, name, value, flags)

    def listxattr(self, path: str) -> list[str]:
        with self._place(path) as fd:
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                return []
            return [name for name in os.listxattr(f"/proc/self/fd/{fd}") if name.startswith(XATTRS)]

    def removexattr(self, path: str, name: str) -> None:
        self._may_change(path)
        with self._users_own(path, name) as place:
            os.removexattr(place, name)

    def statfs(self) -> Space:
        told = os.statvfs(self._root)
        return Space(told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize, told.f_files, told.f_favail)

    def close(self) -> None:
        os.close(self._root)

    @contextmanager
    def _users_own(self, path: str, name: str) -> Iterator[str]:
        """A path to the file for its attribute `name`. Raises OSError for a link, which has none."""
        with self._place(path) as fd:
            if not name.startswith(XATTRS) or stat.S_ISLNK(os.fstat(fd).st_mode):
                raise failure(errno.ENOTSUP, path)
            yield f"/proc/self/fd/{fd}"

    # The rules

    @contextmanager
    def _place(self, path: str, *, changing: bool = False) -> Iterator[int]:
        """A reference to what is at `path`, if a tenant may use it. Checks what was opened, not the path."""
        if changing:
            self._may_change(path)
        self._reach(path)
        with opened(self._root, path) as fd:
            if self._rules is not None and self._rules.blocked(path, os.fstat(fd)):
                raise failure(errno.EACCES, path)
            yield fd

    def _reach(self, path: str) -> None:
        """Raises PermissionError for anything below a blocked directory."""
        if self._rules is None:
            return
        while (path := split(path)[0]) != "/":
            with opened(self._root, path) as fd:
                if self._rules.blocked(path, os.fstat(fd)):
                    raise failure(errno.EACCES, path)

    def _may_change(self, path: str) -> None:
        """Raises OSError if the name may not be created, or what has it may not be changed."""
        if self._rules is None:
            return
        self._reach(path)
        if self._rules.closed(path):
            raise failure(errno.EACCES, path)
        if self._rules.frozen(path):
            raise failure(errno.EROFS, path)

    def _may_move(self, path: str) -> None:
        """Raises OSError if the name may not be removed, or given to something else."""
        self._may_change(path)
        if self._rules is None:
            return
        try:
            with opened(self._root, path) as fd:
                info = os.fstat(fd)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(info.st_mode):
            self._rules.moved()
            if self._rules.frozen(path):
                raise failure(errno.EBUSY, path)
        if self._rules.blocked(path, info):
            raise failure(errno.EACCES, path)

    def _shown(self, path: str, told: os.stat_result) -> FileInfo:
        """What a cover shows: that something is there, and nothing about it."""
        info = self._info(told)
        if self._rules is not None and not stat.S_ISLNK(told.st_mode) and self._rules.blocked(path, told):
            return FileInfo(0, stat.S_IFMT(told.st_mode), ino=info.ino)
        return info

    def _info(self, told: os.stat_result) -> FileInfo:
        ino = told.st_ino
        if told.st_dev != self._device:  # a mount below the root has inode numbers of its own
            ino ^= told.st_dev << 40
        return FileInfo(
            told.st_size,
            told.st_mode,
            told.st_mtime_ns,
            told.st_atime_ns,
            told.st_ctime_ns,
            told.st_nlink,
            0 if told.st_uid == self._uid else SOMEBODY_ELSE,
            0 if told.st_gid == self._gid else SOMEBODY_ELSE,
            ino & 0xFFFF_FFFF_FFFF_FFFF,
            told.st_blocks,
        )

    def _change_link(self, path: str, changes: Changes) -> None:
        """Only the times of a link can be changed."""
        if "mode" in changes or "size" in changes:
            raise failure(errno.EOPNOTSUPP, path)
        if changes.get("uid", 0) or changes.get("gid", 0):
            raise failure(errno.EPERM)
        now = self.stat(path)
        times = (changes.get("atime_ns", now.atime_ns), changes.get("mtime_ns", now.mtime_ns))
        with parent_of(self._root, path) as (parent, name):
            os.utime(name, ns=times, dir_fd=parent, follow_symlinks=False)


def _change(fd: int, changes: Changes) -> None:
    """On a descriptor, which may be O_PATH: /proc/self/fd leads to that very file."""
    place = f"/proc/self/fd/{fd}"
    if changes.get("uid", 0) or changes.get("gid", 0):
        raise failure(errno.EPERM)
    if "mode" in changes:
        is_dir = stat.S_ISDIR(os.fstat(fd).st_mode)
        if changes["mode"] & SET_ID and not is_dir:
            raise failure(errno.EPERM)
        os.chmod(place, changes["mode"] & 0o3777)
    if "size" in changes:
        os.ftruncate(fd, changes["size"])
    if "atime_ns" in changes or "mtime_ns" in changes:
        now = os.fstat(fd)
        times = (changes.get("atime_ns", now.st_atime_ns), changes.get("mtime_ns", now.st_mtime_ns))
        os.utime(place, ns=times)
