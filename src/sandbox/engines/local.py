"""A place on this machine: a guest that was started here, set up, and held to its limits."""

from __future__ import annotations

import os

from sandbox.engines.base import Plan, Running
from sandbox.engines.cgroup import hold
from sandbox.engines.rlimits import rlimits, without_group
from sandbox.errors import SandboxClosed, WallError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.engines.cgroup_limits import Group
    from sandbox.engines.launch import Launch
    from sandbox.engines.usage import Usage


class Room(Running):
    """A started, furnished guest and its control group."""

    def __init__(self, launch: Launch, group: Group | None, unheld: str | None = None) -> None:
        self.unheld = unheld
        self._launch = launch
        self._group = group
        self._closed = False
        self.guest = launch.guest
        self.pid = launch.guest_pid

    def out_of_memory(self) -> str | None:
        return self._group.out_of_memory() if self._group is not None else None

    def usage(self) -> Usage:
        from sandbox.engines.usage import usage

        return usage(self.pid, self._group)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._launch.abandon()
        if self._group is not None:
            self._group.remove()


def stand(start: Callable[[], Launch], arrange: Callable[[], Plan], explain: Callable[[str], Exception]) -> Room:
    """Starts a guest, hears what its place is to be, and furnishes it. `explain` turns a launcher's last words into
    the error to raise.

    Raises what `Engine.open` may raise; then nothing is left behind.
    """
    launch = start()
    group: Group | None = None
    try:
        plan = arrange()
        group = hold(plan.limits, plan.pids, plan.id)
        unheld = without_group(plan, group)
        _furnish(launch, plan, group, explain)
        return Room(launch, group, unheld)
    except BaseException:
        launch.abandon()
        if group is not None:
            group.remove()
        raise


def _furnish(launch: Launch, plan: Plan, group: Group | None, explain: Callable[[str], Exception]) -> None:
    try:
        launch.greet()
    except SandboxClosed:
        raise explain(launch.words()) from None
    if group is not None:
        group.add(launch.guest_pid)
    owner = os.pidfd_open(os.getpid())
    try:
        launch.guest.set_up({**plan.setup(), "rlimits": rlimits(plan.limits, plan.pids, group)}, [owner])
    except SandboxClosed:
        raise WallError(f"the guest ended while it was set up: {launch.words() or 'it said nothing'}") from None
    finally:
        os.close(owner)
