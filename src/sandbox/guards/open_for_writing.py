"""Whether somebody has a file open for writing. The kernel knows: it grants a lease for reading only if nobody has.

A read-only mount keeps a file from being opened for writing, and does nothing about those who have it open already.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import sys
import time

PATIENCE, PAUSE = 0.2, 0.01  # seconds: whoever has just made the file may be about to close it


def stays_open(path: str) -> bool:
    """Whether it is still open for writing after a moment. False if that cannot be known (another user's file, a file
    system without leases)."""
    until = time.monotonic() + PATIENCE
    while is_open(path):
        if time.monotonic() >= until:
            return True
        time.sleep(PAUSE)
    return False


def is_open(path: str) -> bool:
    """Whether it is open for writing now. False if that cannot be known."""
    if sys.platform != "linux":
        return False
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return False
        # Who wants to write during these microseconds waits for us, and the kernel tells us so by a signal that nobody
        # minds; the usual one, SIGIO, would end this process.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as problem:
        return problem.errno == errno.EAGAIN
    finally:
        os.close(file)
    return False
