"""A hash of a directory that a tenant may have written: a checkpoint is compared with it before it is used."""

from __future__ import annotations

import errno
import os
import stat

from sandbox.checkpoints.trees import DEPTH, DIRECTORY, entered, extents, marks, opened_anyway

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def digest(directory: str, leave_out: str) -> str:
    """A hash of every name, mode, attribute and byte of a tree, except the file `leave_out` at its top."""
    import hashlib

    summary = hashlib.sha256()
    top = os.open(directory, DIRECTORY)
    try:
        _add(top, "", summary.update, leave_out, 0)
    finally:
        os.close(top)
    return summary.hexdigest()


def _add(parent: int, path: str, add: Callable[[bytes], None], leave_out: str, depth: int) -> None:
    if depth > DEPTH + 8:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    for name in sorted(os.listdir(parent)):
        if not path and name == leave_out:
            continue
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        here = f"{path}/{name}"
        add(repr((here, status.st_mode, status.st_rdev)).encode())
        if stat.S_ISLNK(status.st_mode):
            add(repr(os.readlink(name, dir_fd=parent)).encode())
        elif stat.S_ISDIR(status.st_mode):
            with entered(name, parent, status) as opened:
                add(repr(marks(opened)).encode())
                _add(opened, here, add, leave_out, depth + 1)
        elif stat.S_ISREG(status.st_mode):
            opened = opened_anyway(name, parent, status, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                add(repr(marks(opened)).encode())
                _add_content(opened, status.st_size, add)
            finally:
                os.close(opened)


def _add_content(opened: int, size: int, add: Callable[[bytes], None]) -> None:
    """Adds the size, and the content and offsets of the parts that are not holes."""
    add(b"%d" % size)
    piece = bytearray(1 << 20)
    view = memoryview(piece)
    for first, last in extents(opened):
        while first < last:
            got = os.preadv(opened, [view[: min(len(piece), last - first)]], first)
            if got <= 0:
                break
            add(b"%d" % first)
            add(view[:got])  # type: ignore[arg-type]
            first += got
