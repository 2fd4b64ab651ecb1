"""Copies one file or directory of an overlay's lower side to its upper side: content, mode, times and attributes."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox.vfs.provider import FileInfo, Provider

CHUNK = 1 << 20


def copy_up(lower: Provider, upper: Provider, path: str, info: FileInfo, *, empty: bool) -> None:
    """Copies `path`, which `info` describes, from `lower` to `upper`, where its parent must exist. With `empty`, the
    content of a file is not copied. Raises OSError, and then leaves no half-copied file."""
    if info.is_dir:
        upper.mkdir(path, info.mode & 0o7777)
    elif info.is_symlink:
        upper.symlink(lower.readlink(path), path)
    elif stat.S_ISREG(info.mode):
        _copy_content(lower, upper, path, 0 if empty else info.size)
    else:
        upper.mknod(path, info.mode)
    _copy_xattrs(lower, upper, path)
    if not info.is_symlink:
        upper.setattr(path, mode=info.mode & 0o7777, atime_ns=info.atime_ns, mtime_ns=info.mtime_ns)


def _copy_xattrs(lower: Provider, upper: Provider, path: str) -> None:
    if not (upper.xattrs and lower.xattrs):
        return
    for name in lower.listxattr(path):
        try:
            upper.setxattr(path, name, lower.getxattr(path, name), 0)
        except OSError as problem:
            if problem.errno not in (errno.ENOTSUP, errno.EPERM):  # not every file system has them
                raise


def _copy_content(lower: Provider, upper: Provider, path: str, size: int) -> None:
    source = lower.open(path, os.O_RDONLY)
    try:
        target = upper.create(path, 0o600)
        try:
            offset = 0
            while offset < size and (data := source.read(CHUNK, offset)):
                offset += target.write(memoryview(data), offset)
        except BaseException:
            upper.remove(path)  # half a copy must not hide the complete file
            raise
        finally:
            target.close()
    finally:
        source.close()
