"""Launchers that wait for a plan: what a pool keeps when its sandboxes get their project late.

A project cannot be mounted into a finished sandbox with all its guards: masks, frozen files, tripwires and the watch
over git belong to the plan, and are built before any tenant can exist. So the pool keeps only the part that does not
depend on the project: the processes and the namespaces.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from sandbox.engines.base import Started
from sandbox.pool.shelf import Shelf

if TYPE_CHECKING:
    from sandbox.engines.base import Engine, Running
    from sandbox.plan.plan import Plan


class Launcher(Started):
    """A started launcher, and what was mounted on this machine at that moment.

    A launcher has its own view of the machine's mounts. If something was mounted since, guards would look at other
    files than tenants see, so it is not used then.
    """

    def __init__(self, engine: Engine) -> None:
        self._mounts = mount_table()
        self._started = engine.start()
        self.directory = self._started.directory

    def alive(self) -> bool:
        """Whether it still runs, and sees what we see."""
        return self._started.alive() and self._mounts == mount_table()

    def begin(self, plan: Plan) -> None:
        self._started.begin(plan)

    def build(self, plan: Plan) -> Running:
        return self._started.build(plan)

    def abandon(self) -> None:
        self._started.abandon()


class Launchers(Shelf[Launcher]):
    """Those that wait to be handed out."""

    def __init__(self, engine: Engine, size: int, max_age: float) -> None:
        super().__init__(lambda: Launcher(engine), size, max_age)

    def _alive(self, one: Launcher) -> bool:
        return one.alive()

    def _healthy(self, one: Launcher) -> bool:
        return one.alive()

    def _end(self, one: Launcher) -> None:
        one.abandon()


def mount_table() -> bytes:
    """What is mounted where, as this process sees it; b"" where the system does not say."""
    if sys.platform != "linux":
        return b""
    try:
        with open(os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC), "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
