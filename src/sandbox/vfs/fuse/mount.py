"""Mounts a provider on this host, without a sandbox: to try one out, for benchmarks and for tests.

Needs /dev/fuse and CAP_SYS_ADMIN in the user namespace (root, or `unshare --user --mount`). In a sandbox the guest
mounts it and passes the descriptor to us. The process that serves a mount must not access it itself, nor start a
program with its working directory there (Python holds its global lock until such a program has started).
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from sandbox.errors import Message, WallError
from sandbox.vfs.fuse.session import DEADLINE, FuseSession
from sandbox.vfs.fuse.structs import MAX_WRITE

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from sandbox.vfs.provider import Provider

MS_NOSUID, MS_NODEV, MNT_DETACH = 2, 4, 2

_libc = ctypes.CDLL(None, use_errno=True)


def open_device(path: str = "/dev/fuse") -> int:
    """Opens the FUSE device. Raises WallError, which says how to allow that."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as problem:
        raise WallError(unavailable(path, problem)) from problem


def unavailable(path: str, problem: OSError) -> str:
    """Why FUSE is unavailable, and what to do about it."""
    if isinstance(problem, FileNotFoundError):
        remedy = Message("load the fuse module (modprobe fuse), or give the container the device (--device /dev/fuse)")
    else:
        remedy = Message("allow it with `chmod 0666 {path}`, as most distributions do, or with a udev rule", path=path)
    return Message(
        "a mount with hooks or with a provider of your own needs {path}, which cannot be opened ({reason}); {remedy}. "
        "Mounts of type memory, real_fs, readonly and overlay without hooks do not need it.",
        path=path,
        reason=problem.strerror,
        remedy=remedy,
    )


class Mounted:
    """`provider` at `path` until the `with` block ends."""

    def __init__(
        self,
        path: str,
        provider: Provider,
        *,
        deadline: float = DEADLINE,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self._path = os.fsencode(path)
        device = open_device()
        options = (
            f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other,"
            f"default_permissions,max_read={MAX_WRITE}"
        )
        if _libc.mount(b"sandbox", self._path, b"fuse.sandbox", MS_NOSUID | MS_NODEV, options.encode()):
            number = ctypes.get_errno()
            os.close(device)
            raise OSError(number, os.strerror(number), path)
        self.session = FuseSession(device, provider, deadline=deadline, report=report)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _libc.umount2(self._path, MNT_DETACH)
        self.session.close()
