"""A clock that only moves forward, at the pace of real time.

While the machine runs, the clock counts what has passed since the ledger was last written, and ignores the wall clock.
After a restart it takes the wall clock, but never a time before the ledger's last. So setting the wall clock back
reopens no window, and setting it forward empties none before a restart. Where the system has no boot id (macOS), the
wall clock counts at any time.
"""

from __future__ import annotations

import time
from typing import NamedTuple

_BOOT = "/proc/sys/kernel/random/boot_id"


class Moment(NamedTuple):
    """What the ledger keeps: its last time, and the boot and uptime at which that was."""

    now: float
    boot: str
    uptime: float


class Clock:
    """This machine's clocks. Tests give their own."""

    def wall(self) -> float:
        return time.time()

    def boot(self) -> str:
        """The id of this boot; empty where the system has none."""
        try:
            with open(_BOOT, encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def uptime(self) -> float:
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def after(self, last: Moment | None) -> Moment:
        """The present moment, never before `last`."""
        boot, uptime, wall = self.boot(), self.uptime(), self.wall()
        if last is None:
            return Moment(wall, boot, uptime)
        if boot and boot == last.boot:
            return Moment(last.now + max(0.0, uptime - last.uptime), boot, max(uptime, last.uptime))
        return Moment(max(wall, last.now), boot, uptime)
