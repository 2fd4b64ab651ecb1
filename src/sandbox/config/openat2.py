"""`openat2`: opens a path that must stay within a directory; the kernel checks every step of the resolution."""

from __future__ import annotations

import ctypes
import errno
import os

_OPENAT2 = 437  # the same on every architecture
O_PATH: int = getattr(os, "O_PATH", 0)  # macOS has neither O_PATH nor openat2
NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH, IN_ROOT = 0x01, 0x02, 0x04, 0x08, 0x10

# How often to try when the kernel says EAGAIN. Tenants can rename without end, and must not keep anyone here.
MOST_AGAIN = 1000

_syscall = ctypes.CDLL(None, use_errno=True).syscall


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def openat2(root: int, name: bytes, flags: int, mode: int, resolve: int) -> int:
    """Opens `name` relative to the directory `root` and returns the descriptor. Raises OSError."""
    how = _OpenHow(flags | os.O_CLOEXEC, mode, resolve)
    again = MOST_AGAIN
    while True:
        fd: int = _syscall(_OPENAT2, root, name, ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        # EAGAIN: something was renamed meanwhile, so the kernel cannot tell whether the path stayed below the root.
        again -= number == errno.EAGAIN
        if number not in (errno.EINTR, errno.EAGAIN) or not again:
            raise OSError(number, os.strerror(number), os.fsdecode(name))
