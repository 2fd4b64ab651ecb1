"""Walks trees so deep that their paths are too long for a system call. Anybody can make such a tree.

Uses descriptors: each directory is opened from one a little above it. Few are open at a time, and nothing recurses.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

STEP = 1000  # characters of a path, of at most four bytes each, that one call accepts
DEEPEST = 2**16  # characters below `start`
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def too_long(path: str) -> bool:
    """Whether paths below `path` may be too long for a system call."""
    return len(path) > STEP and len(os.fsencode(path)) > 3 * STEP


def walk_deep(start: str) -> Iterator[tuple[str, list[tuple[str, int, bool]]]]:
    """Yields `start` and every directory below it: its path relative to `start`, and the name, inode number and
    whether it is a directory of each entry. Raises OSError; ELOOP when a path is longer than `DEEPEST`."""
    bases = [os.open(start, _FLAGS)]
    waiting = [(0, ".", "")]  # which base, the path from it, the path from `start`
    try:
        while waiting:
            base, way, relative = waiting.pop()
            while len(bases) > base + 1:  # everything below those has been listed
                os.close(bases.pop())
            if len(relative) > DEEPEST:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), start)
            if len(way) > STEP:
                bases.append(os.open(way, _FLAGS, dir_fd=bases[base]))
                base, way = base + 1, "."
            found = _entries(bases[base], way)
            yield relative, found
            for name, _, is_dir in found:
                if is_dir:
                    waiting.append((base, f"{way}/{name}", f"{relative}/{name}" if relative else name))
    finally:
        for fd in bases:
            os.close(fd)


def _entries(base: int, way: str) -> list[tuple[str, int, bool]]:
    fd = os.open(way, _FLAGS, dir_fd=base)
    try:
        with os.scandir(fd) as entries:
            return [(one.name, one.inode(), one.is_dir(follow_symlinks=False)) for one in entries]
    finally:
        os.close(fd)
