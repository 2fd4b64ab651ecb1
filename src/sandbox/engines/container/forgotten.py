"""Processes of a container that its engine forgot.

A runtime makes a container in two steps, `create` and `start`. When `start` fails, Docker 20.10 cannot delete what
`create` made ("task must be stopped before deletion"), and forgets the container all the same: its shim, and what the
runtime started, would run until the machine ends, without a name that `docker rm` or `sandbox prune` could use.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from contextlib import ExitStack
from itertools import pairwise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

_ID = re.compile(rb"[0-9a-f]{64}")
_SHIM = b"containerd-shim"  # the parent of a container's processes; its words have `-id ID`


def end_forgotten(printed: BinaryIO) -> None:
    """Kills the shim and the processes of the container whose id `docker run --detach` printed. Never raises: only who
    has the engine's rights may do this."""
    printed.seek(0)
    id = printed.read(256).strip()
    if not _ID.fullmatch(id):
        return  # it was not even created
    for shim in _running():
        if _is_shim(shim, id):
            _end(shim, id)


def _end(shim: int, id: bytes) -> None:
    with ExitStack() as held:
        opened = {pid: _opened(pid, held) for pid in (shim, *_descendants(shim))}
        if not _is_shim(shim, id):
            return
        still = {shim, *_descendants(shim)}  # no number of these can be given to another process any more
        for pid, descriptor in opened.items():
            if descriptor is not None and pid in still:
                _kill(descriptor)


def _opened(pid: int, held: ExitStack) -> int | None:
    if sys.platform != "linux":
        return None  # there the engine's processes are in a virtual machine
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None  # it has ended
    held.callback(os.close, descriptor)
    return descriptor


def _kill(descriptor: int) -> None:
    if sys.platform != "linux":
        return
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        pass  # it has ended, or is another user's


def _is_shim(pid: int, id: bytes) -> bool:
    words = _words(pid)
    return os.path.basename(words[0]).startswith(_SHIM) and (b"-id", id) in pairwise(words)


def _running() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _words(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return [b""]


def _descendants(of: int) -> list[int]:
    parents = {pid: _parent(pid) for pid in _running()}
    found = [of]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found[1:]


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return -1
