"""A clock that only goes forward, at the pace of time.

While the machine runs, time is what has passed since the ledger was last written, whatever the wall clock is set to.
After a restart it is the wall clock, but never earlier than what the ledger has seen. So moving the clock back opens no
window again, and moving it forward empties none before a restart.
"""

from __future__ import annotations

import time
from typing import NamedTuple

_BOOT = "/proc/sys/kernel/random/boot_id"


class Moment(NamedTuple):
    """What the ledger keeps: the time it has seen, and when that was in the life of which boot."""

    now: float
    boot: str
    uptime: float


class Clock:
    """This machine's clocks. Tests give their own."""

    def wall(self) -> float:
        return time.time()

    def boot(self) -> str:
        """Which start of this machine this is; empty where that is not known."""
        try:
            with open(_BOOT, encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def uptime(self) -> float:
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def after(self, last: Moment | None) -> Moment:
        """The present, after `last`."""
        boot, uptime, wall = self.boot(), self.uptime(), self.wall()
        if last is None:
            return Moment(wall, boot, uptime)
        if boot and boot == last.boot:
            return Moment(last.now + max(0.0, uptime - last.uptime), boot, max(uptime, last.uptime))
        return Moment(max(wall, last.now), boot, uptime)
