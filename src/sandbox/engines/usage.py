"""What a sandbox on this machine uses: from its control group if it has one, else summed over its processes.

Every process of a sandbox descends from its guest, and those that lose their parent become the guest's children, so
the tree below the guest is complete. The time of processes that have ended is in the guest's own account of its
children.
"""

from __future__ import annotations

import os

from sandbox.engines.cgroup_tree import lines, text
from sandbox.host_process import descendants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.engines.cgroup_limits import Group


class Usage:
    """Bytes, milliseconds and processes; None where the value is not known."""

    __slots__ = ("memory_bytes", "memory_peak_bytes", "cpu_ms", "processes")

    def __init__(
        self,
        memory_bytes: int | None = None,
        memory_peak_bytes: int | None = None,
        cpu_ms: int | None = None,
        processes: int | None = None,
    ) -> None:
        self.memory_bytes = memory_bytes
        self.memory_peak_bytes = memory_peak_bytes
        self.cpu_ms = cpu_ms
        self.processes = processes


def usage(guest: int, group: Group | None) -> Usage:
    """What the tenants of the guest with this pid use now."""
    tenants = descendants(guest)
    current, peak = group.memory() if group is not None else (None, None)
    memory = sum(_memory(pid) for pid in tenants) if current is None else current
    ticks = _ticks(guest, children_only=True) + sum(_ticks(pid) for pid in tenants)
    return Usage(memory, peak, ticks * 1000 // os.sysconf("SC_CLK_TCK"), len(tenants))


def _memory(pid: int) -> int:
    """A process's proportional share of memory, in which shared pages are divided; else what it has resident."""
    try:
        return _kilobytes(f"/proc/{pid}/smaps_rollup")["Pss:"] * 1024
    except (KeyError, OSError):
        status = _kilobytes(f"/proc/{pid}/status")
        return (status.get("RssAnon:", 0) + status.get("RssShmem:", 0)) * 1024


def _kilobytes(path: str) -> dict[str, int]:
    """The lines of a file of /proc that are a size in kilobytes."""
    words = (line.split() for line in lines(path))
    return {one[0]: int(one[1]) for one in words if len(one) == 3 and one[2] == "kB" and one[1].isdigit()}


def _ticks(pid: int, children_only: bool = False) -> int:
    """The processor time of a process and of its children that have ended, in clock ticks; 0 when it is gone."""
    try:
        fields = text(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return 0
    return sum(int(field) for field in (fields[13:15] if children_only else fields[11:15]))
