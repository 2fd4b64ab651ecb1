"""The sets of layers that projects keep over the person's package caches: listed, cleared, pruned."""

from __future__ import annotations

import fcntl
import os

from sandbox.layout.caches import LOCK, directory_of, empty, project_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def sets(home: str) -> Iterator[str]:
    """Every project's set of layers."""
    try:
        names = os.listdir(f"{home}/caches")
    except OSError:
        return
    yield from (f"{home}/caches/{name}" for name in sorted(names))


def size_of(directory: str) -> int:
    """How many bytes a set of layers takes. What a tenant made unreadable is not counted."""
    return sum(
        os.lstat(os.path.join(place, name)).st_blocks * 512 for place, _, names in os.walk(directory) for name in names
    )


def clear(directory: str) -> bool:
    """Removes a set of layers; False while a sandbox uses it."""
    try:
        fd = os.open(f"{directory}/lock", LOCK, 0o600)
    except FileNotFoundError:
        return False
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        empty(directory)
        os.unlink(f"{directory}/lock")
        os.rmdir(directory)
    finally:
        os.close(fd)
    return True


def prune(home: str) -> list[str]:
    """Removes the layers of projects that are gone; returns those projects."""
    gone = []
    for directory in sets(home):
        project = project_of(directory)
        if project is not None and os.path.isdir(project) and directory_of(home, project) == directory:
            continue
        if clear(directory):
            gone.append(project or directory)
    return gone
