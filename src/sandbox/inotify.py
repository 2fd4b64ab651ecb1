"""inotify, which the standard library lacks: watches on directories, and what happened in them."""

from __future__ import annotations

import ctypes
import os
from struct import Struct

ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
OVERFLOW, IGNORED, IS_DIR = 0x4000, 0x8000, 0x40000000
ONLY_DIR, DONT_FOLLOW, MASK_ADD = 0x01000000, 0x02000000, 0x20000000

_EVENT = Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """One of the kernel's queues, until `close`. Its `fd` becomes readable when something has happened."""

    def __init__(self) -> None:
        """Raises OSError when this user has no queue left."""
        self.fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "inotify cannot be used")

    def close(self) -> None:
        os.close(self.fd)

    def add(self, path: str, wanted: int) -> int:
        """Watches a directory; `read` reports it by the number returned. Raises OSError: ENOSPC at the limit."""
        number: int = _libc.inotify_add_watch(self.fd, os.fsencode(path), wanted)
        if number < 0:
            raise OSError(ctypes.get_errno(), "cannot be watched", path)
        return number

    def remove(self, number: int) -> None:
        """Ends one watch. Does nothing when the directory is gone and its watch with it."""
        _libc.inotify_rm_watch(self.fd, number)

    def read(self) -> list[tuple[int, int, int, str]]:
        """What happened, without waiting: the watch's number, mask, cookie (joins both halves of a rename), name."""
        try:
            data = os.read(self.fd, 2**18)
        except BlockingIOError:
            return []
        happened = []
        at = 0
        while at < len(data):
            number, mask, cookie, length = _EVENT.unpack_from(data, at)
            start, at = at + _EVENT.size, at + _EVENT.size + length
            happened.append((number, mask, cookie, os.fsdecode(data[start:at].rstrip(b"\0"))))
        return happened
