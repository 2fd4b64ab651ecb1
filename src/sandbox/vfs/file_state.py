"""What is at a path in an overlay's layer or in the project. Uses descriptors and follows no link."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox.vfs.open_beneath import open_beneath, opened, reopen
from sandbox.vfs.provider import join

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_LONG = 4 * 4096
"""Bytes of a path. What lies deeper is reported and left alone: each name costs as much as its whole path."""

UNSEEN = {
    "mount": "another file system is mounted there on the host",
    "closed": "cannot be looked into on the host (its mode forbids it)",
}


@dataclass(slots=True)
class FileState:
    """One side of a change."""

    kind: str
    """file, directory, link, fifo, socket or device; of a path on the host also mount or closed (see UNSEEN)"""
    mode: int
    size: int
    target: str | None = None
    identity: tuple[int, int] = (0, 0)
    """Inode and time of the last change: the same means untouched."""
    modified_ns: int = 0
    names: int = 1
    """How many names the file has (hard links)."""


_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


def state_of(root: int, path: str) -> FileState | None:
    """What is at `path` below `root`, or None. A link on the way counts as nothing there."""
    try:
        with opened(root, path, same_mount=True) as fd:
            return state(fd)
    except OSError as problem:
        if problem.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        if problem.errno == errno.EXDEV:
            return FileState("mount", 0, 0)
        if problem.errno == errno.EACCES:
            return FileState("closed", 0, 0)
        raise


def state(fd: int) -> FileState:
    """The same for a descriptor, which may be O_PATH."""
    told = os.fstat(fd)
    kind = _KINDS.get(stat.S_IFMT(told.st_mode), "device")
    target = os.readlink("", dir_fd=fd) if kind == "link" else None
    identity = told.st_ino, told.st_ctime_ns
    return FileState(kind, stat.S_IMODE(told.st_mode), told.st_size, target, identity, told.st_mtime_ns, told.st_nlink)


def open_regular(root: int, path: str) -> int:
    """Opens a regular file below `root` for reading. Raises OSError for anything else, which is never opened."""
    with opened(root, path, same_mount=True) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return reopen(fd, os.O_RDONLY)


def names_in(root: int, path: str) -> list[str]:
    """The names in a directory. Raises OSError."""
    fd = open_beneath(root, path, os.O_RDONLY | os.O_DIRECTORY, same_mount=True)
    try:
        return sorted(os.listdir(fd))
    finally:
        os.close(fd)


def below(root: int, path: str) -> Iterator[tuple[str, FileState]]:
    """Everything below a host directory, parents first. What cannot be read has the kind UNSEEN."""
    waiting = [path]
    while waiting:
        directory = waiting.pop()
        try:
            names = names_in(root, directory)
        except PermissionError:
            yield directory, FileState("closed", 0, 0)
            continue
        for name in names:
            place = join(directory, name)
            found = state_of(root, place)
            if found is None:
                continue
            if found.kind == "directory" and len(place) > MOST_LONG:
                found = FileState("closed", 0, 0)
            yield place, found
            if found.kind == "directory":
                waiting.append(place)
