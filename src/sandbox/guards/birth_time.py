"""When a file was created. Together with the inode number this identifies it: inode numbers are reused, times are not.

The standard library lacks statx. ctypes takes milliseconds to load, so callers use this only when the inode number
alone does not settle it.
"""

from __future__ import annotations

import os
from struct import unpack_from

_BIRTH = 0x800  # STATX_BTIME
_NO_FOLLOW, _EMPTY_PATH = 0x100, 0x1000
_AT_FDCWD = -100
_SIZE = 256  # struct statx
_MASK_AT, _BIRTH_AT = 0, 80  # offsets in it: what was filled in; seconds (s64) and nanoseconds (u32)


def born(path: str) -> int:
    """When the file at `path` was created, in nanoseconds; 0 if the file system does not know. Raises OSError."""
    return _born(_AT_FDCWD, os.fsencode(path), _NO_FOLLOW)


def born_of(fd: int) -> int:
    """The same for an open file."""
    return _born(fd, b"", _EMPTY_PATH)


def _born(directory: int, name: bytes, flags: int) -> int:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    told = ctypes.create_string_buffer(_SIZE)
    if libc.statx(directory, name, flags, _BIRTH, told) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(name))
    if not unpack_from("I", told, _MASK_AT)[0] & _BIRTH:
        return 0
    seconds, nanoseconds = unpack_from("qI", told, _BIRTH_AT)
    moment: int = seconds * 10**9 + nanoseconds
    return moment
