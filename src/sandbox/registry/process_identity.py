"""Whether a recorded pid still belongs to the same process.

The kernel reuses pids. A pid together with the process's start time and the boot id is unique. Where there is no /proc
(macOS) the start time comes from `ps`, as a date, which needs no boot id.
"""

from __future__ import annotations

import os
import sys

LINUX = sys.platform == "linux"


def identity(pid: int, boot: str | None = None, *, proc: bool = LINUX) -> str | None:
    """When process `pid` was started: clock ticks since boot, and the boot id. None when there is no such process."""
    if not proc:
        return _identity_from_ps(pid)
    try:
        # Of its first thread only: for the whole process the kernel would add up the times of all threads.
        stat = _read(f"/proc/{pid}/task/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets, which may itself contain brackets and blanks.
    fields = stat[stat.rindex(")") + 2 :].split()
    if fields[0] in "ZX":
        return None
    return f"{fields[19]} {boot or Boot().id}"


def _identity_from_ps(pid: int) -> str | None:
    from sandbox.host_process import ps

    state, _, started = ps(pid, "state", "lstart").partition(" ")
    return " ".join(started.split()) if state and state[0] not in "ZX" else None


class Boot:
    """The boot id, which changes at every start of the machine. Read once, when it is first needed."""

    def __init__(self) -> None:
        self._id = ""

    @property
    def id(self) -> str:
        if not self._id:
            self._id = _read("/proc/sys/kernel/random/boot_id").strip() if LINUX else "-"
        return self._id


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096).decode("utf-8", "replace")
    finally:
        os.close(descriptor)
