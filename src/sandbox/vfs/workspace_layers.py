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


@contextmanager
def open_layers(root: str, directory: str) -> Iterator[tuple[int | None, int]]:
    """The sandbox's changes (None: there are none yet) and the project. Raises SandboxError if it cannot be opened."""
    try:
        project = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as problem:
        raise SandboxError("cannot open the project {root}: {reason}", root=root, reason=problem.strerror) from problem
    try:
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
