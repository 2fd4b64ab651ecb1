"""Opens paths that cannot lead out of a directory.

`openat2` makes the kernel itself refuse `..` beyond the root, absolute and symbolic links and `/proc`'s magic links at
every step of the resolution, so there is no moment between a check and its use. Everything the host opens on behalf of
a tenant, or in a tree a tenant has written, is opened here.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandbox.config.openat2 import BENEATH, NO_MAGICLINKS, NO_SYMLINKS, NO_XDEV, openat2
from sandbox.vfs.provider import failure, split

if TYPE_CHECKING:
    from collections.abc import Iterator

_AT_ONCE = 4000  # bytes of a path in one call; a tree may be deeper than that


def open_beneath(root: int, path: str, flags: int, mode: int = 0, *, same_mount: bool = False) -> int:
    """Opens `path` (as providers spell it) below the directory `root`. Follows no symbolic link.

    The path may be longer than PATH_MAX. With O_PATH and O_NOFOLLOW the last part may itself be a link. Raises OSError:
    ELOOP for a link on the way, EXDEV for a way out (or, with `same_mount`, into another file system), and what open(2)
    raises.
    """
    resolve = BENEATH | NO_SYMLINKS | NO_MAGICLINKS | (NO_XDEV if same_mount else 0)
    name = os.fsencode(path[1:] or ".")
    above = root
    try:
        while len(name) > _AT_ONCE and (cut := name.rfind(b"/", 0, _AT_ONCE)) > 0:
            below = _openat2(above, name[:cut], os.O_PATH | os.O_DIRECTORY, 0, resolve, path)
            if above != root:
                os.close(above)
            above, name = below, name[cut + 1 :]
        return _openat2(above, name, flags, mode, resolve, path)
    finally:
        if above != root:
            os.close(above)


def _openat2(root: int, name: bytes, flags: int, mode: int, resolve: int, path: str) -> int:
    try:
        return openat2(root, name, flags, mode, resolve)
    except OSError as problem:
        raise failure(problem.errno or errno.EIO, path) from None


@contextmanager
def opened(root: int, path: str, flags: int = os.O_PATH | os.O_NOFOLLOW, *, same_mount: bool = False) -> Iterator[int]:
    """Like `open_beneath`, but closes it at the end. By default a reference to whatever is there, not open for I/O."""
    fd = open_beneath(root, path, flags, same_mount=same_mount)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def parent_of(root: int, path: str, *, same_mount: bool = False) -> Iterator[tuple[int, str]]:
    """The open parent directory and the last name, for the *at family of calls (never given a link to follow)."""
    parent, name = split(path)
    if not name:
        raise failure(errno.EBUSY, path)
    with opened(root, parent, os.O_PATH | os.O_DIRECTORY, same_mount=same_mount) as fd:
        yield fd, name


def reopen(fd: int, flags: int) -> int:
    """Opens the file that an O_PATH descriptor refers to for I/O, after its type has been checked."""
    return os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)
