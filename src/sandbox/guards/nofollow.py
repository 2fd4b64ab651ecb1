"""Directories in a project, opened so that what is done there is done there.

A tenant of another sandbox, or whoever owns the project, can put a link where a directory was a moment ago.
"""

from __future__ import annotations

import errno
import os

O_PATH = 0o10000000


def open_in_place(directory: str) -> int:
    """A descriptor of a directory at this very path. Raises OSError, ELOOP when a link led elsewhere."""
    fd = os.open(directory, O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    # Asked of what was opened, so that nothing can change between the question and the use.
    if os.readlink(f"/proc/self/fd/{fd}") != directory:
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), directory)
    return fd
