"""Opens directories of a project without following symbolic links.

A tenant of another sandbox, or the project's owner, can replace a directory with a link at any moment.
"""

from __future__ import annotations

import errno
import os

O_PATH = 0o10000000


def open_in_place(directory: str) -> int:
    """Opens the directory at exactly this path. Raises OSError; ELOOP when there is a link anywhere on it."""
    fd = os.open(directory, O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    # Asks about what was opened, so nothing can change between the check and the use.
    if path_of(fd) != directory:
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), directory)
    return fd


def path_of(fd: int) -> str:
    """Where an open file or directory is now."""
    return os.readlink(f"/proc/self/fd/{fd}")
