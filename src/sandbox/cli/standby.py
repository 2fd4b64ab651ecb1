"""What the process of `guards/standby.py` does when the owner of sandboxes was killed."""

from __future__ import annotations

import os
import select
import sys
import time

from sandbox.audit.file_entries import made, undone
from sandbox.audit.record import Record
from sandbox.cli.run_summary import tell_made, tell_undone
from sandbox.errors import SandboxError
from sandbox.guards.killed_sandboxes import repair_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PATIENCE = 30.0  # seconds for tenants to end: the kernel and the guest end them at once


def main(home: str, record: str, processes: str) -> None:
    """`processes`: a descriptor of the list of the owner and the first processes of its sandboxes."""
    wait_for(map(int, os.pread(int(processes), 2**24, 0).split()))
    found: list[tuple[str, str]] = []
    new: list[str] = []
    repair_all(home, lambda *one: found.append(one), new.append)
    if not found and not new:
        return
    try:
        written = Record(record)
        for path, saved in found:
            undone(written, path, saved)
        for path in new:
            made(written, path)
    except SandboxError:
        pass  # the disk is full; what was undone is undone
    tell_undone(found)
    tell_made(new)


def wait_for(pids: Iterable[int]) -> None:
    """Waits until these processes are gone, and with the first one of a sandbox all others."""
    if sys.platform != "linux":
        return
    until = time.monotonic() + PATIENCE
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            continue  # gone
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, until - time.monotonic()) * 1000)
        os.close(descriptor)
