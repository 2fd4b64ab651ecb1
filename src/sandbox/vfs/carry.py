"""Carrying one change over to the host: a file appears whole or not at all, where the one that was compared is.

Both sides are open directories; every path is resolved beneath them and no link is followed.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from sandbox.vfs.beneath import opened, parent_of
from sandbox.vfs.changes import Change, State, open_regular, state_of
from sandbox.vfs.provider import join, split

if TYPE_CHECKING:
    from collections.abc import Iterator

COPY = 1 << 24


class MovedOn(Exception):
    """The host's file is no longer the one that was compared."""


def check_unmoved(project: int, path: str, before: State | None) -> None:
    now = state_of(project, path)
    if (now and now.identity) != (before and before.identity):
        raise MovedOn("the file was changed on the host just now")


def make_parents(upper: int, project: int, path: str) -> None:
    """Directories that only the sandbox has, when a single file in them is carried over."""
    if path == "/" or state_of(project, path) is not None:
        return
    make_parents(upper, project, split(path)[0])
    state = state_of(upper, path)
    make_directory(project, path, state.mode if state else 0o755)


def make_directory(project: int, path: str, mode: int) -> None:
    with parent_of(project, path) as (parent, name):
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            if state_of(project, path) is None:
                raise
        with opened(project, path, os.O_RDONLY | os.O_DIRECTORY) as fd:
            _take_over(fd, None, parent)
            os.fchmod(fd, mode & 0o777)


def set_mode(project: int, path: str, mode: int) -> None:
    with opened(project, path) as fd:
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        os.chmod(f"/proc/self/fd/{fd}", mode & 0o777)


def put_link(project: int, path: str, change: Change) -> None:
    assert change.after is not None and change.after.target is not None
    with parent_of(project, path) as (parent, name):
        fresh = _fresh_name()
        os.symlink(change.after.target, fresh, dir_fd=parent)
        _put(project, path, parent, fresh, name, change.before)


def put_file(upper: int, project: int, path: str, change: Change) -> None:
    assert change.after is not None
    source = open_regular(upper, path)
    try:
        with parent_of(project, path) as (parent, name):
            fresh = _fresh_name()
            target = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=parent)
            try:
                _copy(source, target)
                _take_over(target, _owner(project, path) if change.before else None, parent)
                os.fchmod(target, change.after.mode & 0o777)
                os.fsync(target)
            except BaseException:
                os.unlink(fresh, dir_fd=parent)
                raise
            finally:
                os.close(target)
            _put(project, path, parent, fresh, name, change.before)
    finally:
        os.close(source)


def _copy(source: int, target: int) -> None:
    """Holes stay holes: a tenant can make one larger than the disk."""
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


def _put(project: int, path: str, parent: int, fresh: str, name: str, before: State | None) -> None:
    """The last step, which makes a finished file appear under its name in one go."""
    try:
        check_unmoved(project, path, before)
        if before is None:
            # Never over something that has appeared since: a second name fails where a rename would replace.
            os.link(fresh, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
            os.unlink(fresh, dir_fd=parent)
        else:
            os.rename(fresh, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        os.unlink(fresh, dir_fd=parent)
        raise


def _fresh_name() -> str:
    return f".sandbox-apply-{os.urandom(8).hex()}"


def _owner(project: int, path: str) -> tuple[int, int]:
    with opened(project, path) as fd:
        told = os.fstat(fd)
        return told.st_uid, told.st_gid


def _take_over(fd: int, owner: tuple[int, int] | None, parent: int) -> None:
    """Root carries changes over into somebody's project: the files stay, or become, that person's."""
    if os.geteuid() == 0:
        told = os.fstat(parent)
        os.fchown(fd, *(owner or (told.st_uid, told.st_gid)))


def tree(root: int, path: str) -> Iterator[tuple[str, State]]:
    """Everything below a host directory, children before parents."""
    with opened(root, path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        names = os.listdir(fd)
    for name in names:
        place = join(path, name)
        state = state_of(root, place)
        if state is None:
            continue
        if state.kind == "directory":
            yield from tree(root, place)
        yield place, state


def remove(root: int, path: str) -> None:
    for place, state in [*tree(root, path), (path, State("directory", 0, 0))]:
        with parent_of(root, place) as (parent, name):
            if state.kind == "directory":
                os.rmdir(name, dir_fd=parent)
            else:
                os.unlink(name, dir_fd=parent)
