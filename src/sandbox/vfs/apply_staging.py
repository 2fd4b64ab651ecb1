"""The staging directory of `apply`: everything is prepared here before renames move it into place.

It is in the project, because only there a rename is certain to stay on the same file system. The journal, which is
outside, has its name, so that after a crash it cannot be confused with something that a tenant made.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat

from sandbox.config.rmtree import empty_tree

COPY = 1 << 24
_NOREPLACE, _EXCHANGE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


class MovedOn(Exception):
    """The host's file is no longer the one that was compared."""


Mark = tuple[int, int, int]
"""Inode, time of modification and size: what stays when a file is renamed. Of a directory only the inode."""


def mark_of(parent: int, name: str) -> Mark | None:
    """Identifies what is there, without following a link; None if nothing is."""
    try:
        told = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(told.st_mode):
        return told.st_ino, 0, 0
    return told.st_ino, told.st_mtime_ns, told.st_size


class Stage:
    """An open staging directory. The name of an entry is its step's slot."""

    def __init__(self, project: int, name: str) -> None:
        self._project = project
        self.name = name
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self.fd = os.open(name, flags, dir_fd=project)

    @classmethod
    def make(cls, project: int, name: str) -> Stage:
        os.mkdir(name, 0o700, dir_fd=project)
        return cls(project, name)

    def close(self) -> None:
        os.close(self.fd)

    def remove(self) -> None:
        """Removes it with everything in it."""
        empty_tree(self.fd)
        os.rmdir(self.name, dir_fd=self._project)

    def add_file(self, slot: str, source: int, mode: int, owner: tuple[int, int]) -> None:
        target = os.open(slot, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self.fd)
        try:
            _copy(source, target)
            _take_over(target, owner)
            os.fchmod(target, mode & 0o777)
        except OSError:
            os.unlink(slot, dir_fd=self.fd)  # on a full disk, there may be room for the others without it
            raise
        finally:
            os.close(target)

    def add_directory(self, slot: str, owner: tuple[int, int]) -> None:
        os.mkdir(slot, 0o700, dir_fd=self.fd)
        fd = os.open(slot, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            _take_over(fd, owner)
        finally:
            os.close(fd)

    def add_link(self, slot: str, target: str) -> None:
        os.symlink(target, slot, dir_fd=self.fd)

    def add_name(self, slot: str, parent: int, name: str) -> None:
        """Adds a hard link to a file that exists already."""
        os.link(name, slot, src_dir_fd=parent, dst_dir_fd=self.fd, follow_symlinks=False)

    def sync(self) -> None:
        """Returns when all of it is on disk."""
        if _libc.syncfs(self.fd) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")


def put_new(source: int, slot: str, parent: int, name: str) -> None:
    """A rename that never replaces. Raises MovedOn when something is there."""
    try:
        _renameat2(source, slot, parent, name, _NOREPLACE)
        return
    except FileExistsError:
        raise MovedOn("the file was changed on the host just now") from None
    except OSError as problem:
        if problem.errno != errno.EINVAL:
            raise
    if mark_of(parent, name) is not None:  # the file system lacks such a rename: check first, then rename
        raise MovedOn("the file was changed on the host just now")
    os.rename(slot, name, src_dir_fd=source, dst_dir_fd=parent)


def exchange(stage: int, slot: str, parent: int, name: str) -> None:
    """Exchanges the two, atomically if the file system supports that."""
    try:
        _renameat2(stage, slot, parent, name, _EXCHANGE)
        return
    except OSError as problem:
        if problem.errno != errno.EINVAL:
            raise
    os.rename(name, f"{slot}.old", src_dir_fd=parent, dst_dir_fd=stage)
    os.rename(slot, name, src_dir_fd=stage, dst_dir_fd=parent)
    os.rename(f"{slot}.old", slot, src_dir_fd=stage, dst_dir_fd=stage)


def _renameat2(source: int, old: str, target: int, new: str, flags: int) -> None:
    if _libc.renameat2(source, os.fsencode(old), target, os.fsencode(new), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), new)


def _copy(source: int, target: int) -> None:
    """Copies a file and keeps its holes, because a tenant can make one that is larger than the disk."""
    size, start = os.fstat(source).st_size, 0
    os.ftruncate(target, size)
    while start < size:
        try:
            start = os.lseek(source, start, os.SEEK_DATA)
        except OSError as problem:
            if problem.errno != errno.ENXIO:
                raise
            return  # nothing but a hole is left
        end = os.lseek(source, start, os.SEEK_HOLE)
        os.lseek(target, start, os.SEEK_SET)
        while start < end and (sent := os.sendfile(target, source, start, min(COPY, end - start))):
            start += sent
        if start < end:
            return  # it became shorter meanwhile


def _take_over(fd: int, owner: tuple[int, int]) -> None:
    """When root applies changes to somebody's project, the files belong to that person."""
    if os.geteuid() == 0:
        os.fchown(fd, *owner)
