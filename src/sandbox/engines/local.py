"""A guest on this machine: started, set up, and limited."""

from __future__ import annotations

import os

from sandbox.engines.base import GuestRunning, Pausable, Started
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


TRIES = 5  # at launching, where trying again may help


class LocalRunning(GuestRunning, Pausable):
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

    def pause(self) -> None:
        try:
            if self._group is None or not self._group.freeze(True):
                self._guest.pause()
        except OSError as problem:
            raise WallError("the sandbox cannot be paused: {reason}", reason=problem.strerror) from None

    def resume(self) -> None:
        try:
            if self._group is None or not self._group.freeze(False):
                self._guest.resume()
        except OSError as problem:
            raise WallError("the sandbox cannot be resumed: {reason}", reason=problem.strerror) from None

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
    while it builds. `again` launches another one if that message says that it may do better, or returns None.
    """

    def __init__(
        self,
        launch: Launch,
        explain: Callable[[str], Exception],
        stage: str = "",
        again: Callable[[str], Launch | None] | None = None,
    ) -> None:
        self._launch = launch
        self._explain = explain
        self._stage = stage
        self._again = again
        self._group: Group | None = None
        self._unheld: str | None = None
        self._setup: dict[str, object] | None = None

    def alive(self) -> bool:
        return self._launch.guest.alive()

    def begin(self, plan: Plan) -> None:
        """Sends the plan; the guest reads it when it starts. With a control group it is sent later: the guest must be
        in the group before it builds anything."""
        self._group = hold(plan.limits, plan.pids, plan.id)
        self._unheld = without_group(plan, self._group)
        held = rlimits(plan.limits, plan.pids, self._group, plan.address_space)
        self._setup = {**plan.setup(self._stage), "rlimits": held}
        if self._group is None:
            self._send_early(self._setup)

    def build(self, plan: Plan) -> LocalRunning:
        try:
            if self._setup is None:
                self.begin(plan)
            self._finish()
            if plan.fill is not None:
                plan.fill(self._launch.guest_pid)
            return LocalRunning(self._launch, self._group, self._unheld)
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        self._launch.abandon()
        group, self._group = self._group, None
        if group is not None:
            group.remove()

    def _finish(self) -> None:
        self._greet()
        launch = self._launch
        try:
            if self._group is not None and self._setup is not None:
                self._group.add(launch.guest_pid)
                self._send(self._setup)
            launch.guest.wait_ready()
        except SandboxClosed:
            said = launch.words() or Message("the guest ended without a message; run `sandbox doctor`")
            raise WallError("the guest ended while it was set up: {said}", said=said) from None

    def _greet(self) -> None:
        """Waits for the guest. Raises what `explain` returns."""
        for turn in range(TRIES):
            try:
                return self._launch.greet()
            except SandboxClosed:
                said = self._launch.words()
            launch = self._again(said) if self._again is not None and turn < TRIES - 1 else None
            if launch is None:
                raise self._explain(said)
            self._launch.abandon()
            self._launch = launch
            if self._group is None and self._setup is not None:
                self._send_early(self._setup)

    def _send_early(self, setup: dict[str, object]) -> None:
        try:
            self._send(setup)
        except SandboxClosed:
            pass  # the launcher has failed: `_greet` says why, or tries again

    def _send(self, setup: dict[str, object]) -> None:
        owner = os.pidfd_open(os.getpid())
        try:
            self._launch.guest.send_setup(setup, [owner])
        finally:
            os.close(owner)
