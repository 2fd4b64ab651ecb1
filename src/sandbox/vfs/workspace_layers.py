"""An overlay project's two sides, opened: the sandbox's changes and the host's files."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandbox.errors import SandboxError
from sandbox.vfs.file_state import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.vfs.changes import Change


def place_of(root: str) -> list[int]:
    """What identifies the project's directory later, whatever has its path by then."""
    status = os.stat(root)
    return [status.st_ino, status.st_dev]


def is_at(place: list[int], project: int) -> bool:
    """Whether the open directory is the one of `place`.

    The device's number changes when a disk is mounted again. It counts at the top of a file system, where the inode
    number is the same in all of them."""
    if not place:
        return True  # kept by an earlier version, which did not write it down
    found, above = os.fstat(project), os.stat("..", dir_fd=project)
    is_top = found.st_dev != above.st_dev or found.st_ino == above.st_ino
    return found.st_ino == place[0] and (not is_top or found.st_dev == place[1])


@contextmanager
def open_layers(root: str, directory: str, place: list[int]) -> Iterator[tuple[int | None, int]]:
    """The sandbox's changes (None: there are none yet) and the project. Raises SandboxError if it cannot be opened, or
    if another directory has its path now: a link that leads there, for example, which another sandbox made."""
    try:
        project = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as problem:
        raise SandboxError("cannot open the project {root}: {reason}", root=root, reason=problem.strerror) from problem
    try:
        if not is_at(place, project):
            raise SandboxError(
                "{root} is no longer the directory that the sandbox was started in; its changes stay in {directory}",
                root=root,
                directory=directory,
            )
        upper = None
        try:
            upper = os.open(os.path.join(directory, "upper"), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            pass  # the sandbox ended before the overlay was mounted
        try:
            yield upper, project
        finally:
            if upper is not None:
                os.close(upper)
    finally:
        os.close(project)


@contextmanager
def open_sides(upper: int | None, project: int, change: Change) -> Iterator[tuple[int | None, int | None]]:
    """The host's and the sandbox's content of a file that changed, open for reading; None where there is none."""
    fds: list[int | None] = []
    try:
        for root, side in ((project, change.before), (upper, change.after)):
            is_file = root is not None and side is not None and side.kind == "file"
            fds.append(open_regular(root, "/" + change.path) if is_file and root is not None else None)
        yield fds[0], fds[1]
    finally:
        for fd in fds:
            if fd is not None:
                os.close(fd)
