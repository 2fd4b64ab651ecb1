"""A guest on this machine: started, set up, and limited."""

from __future__ import annotations

import os

from sandbox.engines.base import GuestRunning, Started
from sandbox.engines.cgroup import hold
from sandbox.engines.rlimits import rlimits, without_group
from sandbox.errors import Message, SandboxClosed, WallError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.engines.cgroup_limits import Group
    from sandbox.engines.launch import Launch
    from sandbox.engines.usage import Usage
    from sandbox.plan.plan import Plan


class LocalRunning(GuestRunning):
    """A guest that is set up, and its control group."""

    def __init__(self, launch: Launch, group: Group | None, unheld: str | None = None) -> None:
        super().__init__(launch.guest)
        self.unheld = unheld
        self.pid = launch.guest_pid
        self.have = launch.guest.have
        self._launch = launch
        self._group = group
        self._closed = False

    def out_of_memory(self) -> str | None:
        return self._group.out_of_memory() if self._group is not None else None

    def usage(self) -> Usage:
        from sandbox.engines.usage import usage

        return usage(self._launch.guest_pid, self._group)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._launch.abandon()
        if self._group is not None:
            self._group.remove()


class LocalStart(Started):
    """A launched guest.

    `explain` turns a launcher's last message into the error to raise. `stage` is where the guest sees the host's files
    while it builds.
    """

    def __init__(self, launch: Launch, explain: Callable[[str], Exception], stage: str = "") -> None:
        self._launch = launch
        self._explain = explain
        self._stage = stage

    def build(self, plan: Plan) -> LocalRunning:
        group: Group | None = None
        try:
            group = hold(plan.limits, plan.pids, plan.id)
            unheld = without_group(plan, group)
            self._set_up(plan, group)
            return LocalRunning(self._launch, group, unheld)
        except BaseException:
            self._launch.abandon()
            if group is not None:
                group.remove()
            raise

    def abandon(self) -> None:
        self._launch.abandon()

    def _set_up(self, plan: Plan, group: Group | None) -> None:
        launch = self._launch
        try:
            launch.greet()
        except SandboxClosed:
            raise self._explain(launch.words()) from None
        if group is not None:
            group.add(launch.guest_pid)
        owner = os.pidfd_open(os.getpid())
        try:
            setup = {**plan.setup(self._stage), "rlimits": rlimits(plan.limits, plan.pids, group)}
            launch.guest.set_up(setup, [owner])
        except SandboxClosed:
            said = launch.words() or Message("the guest ended without a message; run `sandbox doctor`")
            raise WallError("the guest ended while it was set up: {said}", said=said) from None
        finally:
            os.close(owner)
