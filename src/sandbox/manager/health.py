"""Checks whether a sandbox works: a command in it, its gate, and free space on disk and in memory."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec

from sandbox.audit.entry import timestamp
from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from sandbox.sandbox import Sandbox

LEAST_DISK = 64 * 2**20  # bytes that must be free on the workspace's file system
LEAST_MEMORY = 64 * 2**20  # bytes that must be free on the machine
MOST_MEMORY = 0.98  # share of the sandbox's own limit that may be in use


class Health(msgspec.Struct, omit_defaults=False):
    """The result of one check: each thing that was checked, and what was wrong with it ("" for nothing)."""

    healthy: bool
    checks: dict[str, str]
    checked_at: str


def shown(seen: Health | None, failures: int) -> dict[str, object]:
    """The last check (None: there was none yet) as a manager's status has it."""
    return {
        "status": "unknown" if seen is None else "healthy" if seen.healthy else "failing",
        "checks": {} if seen is None else seen.checks,
        "failures": failures,
        "checkedAt": None if seen is None else seen.checked_at,
    }


def check(sandbox: Sandbox, patience: float) -> Health:
    """Checks everything. A check that fails with an error counts as unhealthy."""
    checks = {
        "command": _of(lambda: _command(sandbox, patience)),
        "gate": _of(lambda: _gate(sandbox, patience)),
        "disk": _of(lambda: _disk(sandbox)),
        "memory": _of(lambda: _memory(sandbox)),
    }
    return Health(not any(checks.values()), checks, timestamp(time.time()))


def _of(look: object) -> str:
    try:
        return str(look())  # type: ignore[operator]
    except (SandboxError, OSError, ValueError) as problem:
        return str(problem) or type(problem).__name__


def _command(sandbox: Sandbox, patience: float) -> str:
    """Runs the shortest possible command through the guest."""
    result = sandbox.exec(["/bin/sh", "-c", "exit 0"], timeout=patience)
    if result.timed_out:
        return f"a command did not end within {patience:g} s"
    return "" if result.exit_code == 0 else f"a command ended with {result.exit_code}"


def _gate(sandbox: Sandbox, patience: float) -> str:
    return "" if sandbox._gate_thread.answers(patience) else f"the gate did not answer within {patience:g} s"


def _disk(sandbox: Sandbox) -> str:
    root = sandbox.config.filesystem.root
    try:
        state = os.statvfs(root)
    except FileNotFoundError:
        return f"the workspace {root} is gone"
    free = state.f_bavail * state.f_frsize
    return "" if free >= LEAST_DISK else f"{free} bytes are free where the workspace is"


def _memory(sandbox: Sandbox) -> str:
    used, limit = sandbox.stats().memory_bytes, sandbox.config.limits.memory
    if used is not None and limit is not None and used > limit * MOST_MEMORY:
        return f"{used} of {limit} bytes are in use"
    free = _available()
    return "" if free is None or free >= LEAST_MEMORY else f"this machine has {free} bytes of memory left"


def _available() -> int | None:
    """The memory that is available without swapping, in bytes; None where the kernel does not report it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
