"""The control group of one sandbox: its limits, and what the kernel reports about them."""

from __future__ import annotations

import errno
import os
import time

from sandbox.engines import cgroup_tree as tree
from sandbox.errors import LimitUnavailable, Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Limits

_FREEZE_TRIES = 2000  # milliseconds
_PERIOD = 100_000  # microseconds: the period of a processor quota
_V2_MEMORY = ("memory.max", "memory.peak")
_V1_USED = ("memory.usage_in_bytes", "memory.max_usage_in_bytes")
_V1_MEMORY = ("memory.limit_in_bytes", "memory.max_usage_in_bytes")


class Group:
    """One directory in v2, one per controller in v1."""

    def __init__(self, directories: dict[str, str], version: int) -> None:
        self._directories = directories  # controller -> its directory
        self._version = version
        self._kills = 0

    def holds(self, controller: str) -> bool:
        return controller in self._directories

    def apply(self, limits: Limits, pids: int | None) -> None:
        """Sets the limits. Raises LimitUnavailable when the kernel refuses one."""
        v2 = self._version == 2
        if limits.memory is not None:
            self._set("memory", "memory.max" if v2 else "memory.limit_in_bytes", limits.memory)
            # Without this the limit would only push tenants into swap. Absent where the kernel accounts no swap.
            swap, most = ("memory.swap.max", 0) if v2 else ("memory.memsw.limit_in_bytes", limits.memory)
            if os.path.exists(f"{self._directories['memory']}/{swap}"):
                self._set("memory", swap, most)
        if limits.cpus is not None:
            quota = max(1000, int(limits.cpus * _PERIOD))
            if v2:
                self._set("cpu", "cpu.max", f"{quota} {_PERIOD}")
            else:
                self._set("cpu", "cpu.cfs_period_us", _PERIOD)
                self._set("cpu", "cpu.cfs_quota_us", quota)
        if pids is not None:
            self._set("pids", "pids.max", pids + 1)  # the guest is one of them

    def add(self, pid: int) -> None:
        """Moves a process in; what it starts from then on is in too. Raises LimitUnavailable."""
        inside = f"/{tree.INSIDE}" if self._version == 2 else ""
        try:
            for directory in set(self._directories.values()):
                tree.write(f"{directory}{inside}/cgroup.procs", pid)
        except OSError as problem:
            raise LimitUnavailable(
                "cannot move the sandbox into the control group {directory}: {reason}",
                directory=directory,
                reason=problem.strerror,
            ) from problem

    def out_of_memory(self) -> str | None:
        """A message about kills since the last call, or None."""
        if not self.holds("memory"):
            return None
        name = "memory.events" if self._version == 2 else "memory.oom_control"
        kills = tree.table(f"{self._directories['memory']}/{name}").get("oom_kill", 0)
        if kills <= self._kills:
            return None
        self._kills = kills
        limit, peak = (self._read("memory", name) for name in (_V2_MEMORY if self._version == 2 else _V1_MEMORY))
        if not peak:  # version 2 has no peak before Linux 5.19
            return Message("out of memory: the limit is {limit}", limit=_megabytes(limit))
        return Message(
            "out of memory: the limit is {limit}, the peak was {peak}", limit=_megabytes(limit), peak=_megabytes(peak)
        )

    def freeze(self, frozen: bool) -> bool:
        """Stops every process of the group, or lets them continue. False if this kind of group cannot. Raises OSError.

        In version 1 freezing is a separate hierarchy, in which we make no groups.
        """
        directory = next(iter(self._directories.values()), "")
        if self._version != 2 or not os.path.exists(f"{directory}/cgroup.freeze"):
            return False
        tree.write(f"{directory}/cgroup.freeze", int(frozen))
        for _ in range(_FREEZE_TRIES):
            if tree.table(f"{directory}/cgroup.events").get("frozen", 0) == int(frozen):
                return True
            time.sleep(0.001)
        tree.write(f"{directory}/cgroup.freeze", 0)
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    def memory(self) -> tuple[int | None, int | None]:
        """The bytes in use and their peak; None where this group does not count them."""
        if not self.holds("memory"):
            return None, None
        names = ("memory.current", "memory.peak") if self._version == 2 else _V1_USED
        now, peak = (self._read("memory", name) for name in names)
        return now, peak or None  # version 2 has no peak before Linux 5.19

    def limit(self, controller: str) -> float | None:
        """The limit that the kernel enforces, in bytes, processors or processes. None where there is no limit."""
        if not self.holds(controller):
            return None
        directory, v2 = self._directories[controller], self._version == 2
        if controller == "cpu":
            quota, period = self._quota(directory)
            return quota / period if quota > 0 and period > 0 else None
        name = {"memory": "memory.max" if v2 else "memory.limit_in_bytes", "pids": "pids.max"}[controller]
        return self._read(controller, name) or None  # "max" reads as 0

    def _quota(self, directory: str) -> tuple[int, int]:
        """Microseconds of processor time, and the period they are for. (0, 0), or a negative first number: no quota."""
        files = ("cpu.max",) if self._version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = [word for name in files for line in tree.lines(f"{directory}/{name}") for word in line.split()]
        return (int(words[0]), int(words[1])) if len(words) == 2 and words[0] != "max" else (0, 0)

    def remove(self) -> None:
        """Removes the group, whose processes have all ended. Never raises: the next start removes what is left."""
        for directory in set(self._directories.values()):
            tree.remove(directory)

    def _set(self, controller: str, name: str, value: object) -> None:
        try:
            tree.write(f"{self._directories[controller]}/{name}", value)
        except OSError as problem:
            raise LimitUnavailable(
                "the kernel refused {name} = {value}: {reason}", name=name, value=value, reason=problem.strerror
            ) from problem

    def _read(self, controller: str, name: str) -> int:
        try:
            return int(tree.text(f"{self._directories[controller]}/{name}"))
        except (OSError, ValueError):
            return 0


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
