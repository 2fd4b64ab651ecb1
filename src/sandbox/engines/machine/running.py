"""A running machine, and how it is started: in a room like that of any sandbox, with a second guest inside."""

from __future__ import annotations

import time
from abc import abstractmethod

from sandbox.engines.base import Capabilities, GuestRunning, Started
from sandbox.engines.bubblewrap import Bubblewrap
from sandbox.engines.machine.place import DIRECTORY
from sandbox.engines.machine.setup import limit_room
from sandbox.errors import SandboxClosed, WallError
from sandbox.guest.framed import FramedGuest
from sandbox.layout.etc import tenant
from sandbox.layout.system import HostSystem
from sandbox.plan.plan import Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from sandbox.engines.local import LocalRunning, LocalStart
    from sandbox.engines.machine.processes import Processes
    from sandbox.engines.usage import Usage

CLOCK_NS = 20_000_000  # how far behind a clock may be
CLOCK_TRIES = 5


def capabilities(checkpoint: str) -> Capabilities:
    """The room's capabilities, without what does not cross into a machine."""
    return Capabilities(
        own_root=True,
        namespace=True,
        fuse=True,
        overlay=True,
        tripwires=True,
        programs=False,
        gate="sockets",
        limits=True,
        descriptors=False,
        checkpoint=checkpoint,
    )


class MachineRunning(GuestRunning):
    """A machine in its room. The machine's guest handles commands and files, the room everything else."""

    _guest: FramedGuest

    def __init__(self, room: LocalRunning, guest: FramedGuest, machine: Processes) -> None:
        super().__init__(guest)
        self._room = room
        self._machine = machine
        self._closed = False
        self.unheld = room.unheld
        self.pid = room.pid
        self.missed = room.missed
        self.tripwires = room.tripwires

    def take_sockets(self) -> Mapping[str, _socket.socket]:
        return self._room.take_sockets()

    def take_devices(self) -> dict[str, int]:
        return self._room.take_devices()

    def alive(self) -> bool:
        return super().alive() and self._room.alive()

    def out_of_memory(self) -> str | None:
        return self._room.out_of_memory()

    def usage(self) -> Usage:
        return self._room.usage()

    def report_socket(self) -> _socket.socket:
        return self._room.report_socket()

    def reports(self, patience: float | None = None) -> Iterator[dict[str, Any]]:
        return self._room.reports(patience)

    def finish(self) -> None:
        self._room.finish()

    def close(self) -> None:
        """Ends the room and everything in it."""
        if self._closed:
            return
        self._closed = True
        self._room.close()
        self._guest.close()
        self._machine.close()
        self.ended()

    def ended(self) -> None:
        """Releases what else the owner holds for the machine. For subclasses."""


class MachineStart(Started):
    """A room that has been started, before its plan is known."""

    def __init__(self, room: LocalStart) -> None:
        self._room = room

    @abstractmethod
    def prepare(self, plan: Plan) -> Callable[[LocalRunning], MachineRunning]:
        """Finds the template, adds what the room must show to `plan`, and returns what will start the machine."""

    def build(self, plan: Plan) -> MachineRunning:
        limits, pids = plan.limits, plan.pids
        try:
            start_machine = self.prepare(plan)
        except BaseException:
            self._room.abandon()
            raise
        limit_room(plan)
        room = self._room.build(plan)
        plan.limits, plan.pids = limits, pids
        try:
            return start_machine(room)
        except BaseException:
            room.close()
            raise

    def abandon(self) -> None:
        self._room.abandon()


def bare_room(directory: str, furnish: Callable[[Plan], None] = lambda plan: None) -> LocalRunning:
    """A room that shows the system and one directory, for our own programs only: templates are made in it."""
    plan = Plan()
    plan.id = "template"
    plan.user, plan.uid, plan.gid = tenant("user")
    plan.scratch = [("/tmp", 0o1777), ("/run", 0o755)]
    plan.scratch_size = 1 << 26
    HostSystem().show(plan, "/tmp")
    plan.show(directory, DIRECTORY, True)
    plan.writable = ["/tmp", DIRECTORY, "/dev", "/proc"]
    plan.network = False
    furnish(plan)
    return Bubblewrap().start().build(plan)


def greeted(guest: FramedGuest, machine: Processes, greet: Callable[[FramedGuest], None]) -> FramedGuest:
    """The machine's guest, after `greet` has set it up and its clock has been set. Raises WallError."""
    try:
        greet(guest)
        set_time(guest)  # until then the machine was being loaded
    except SandboxClosed:
        guest.close()
        raise WallError("the virtual machine ended: {said}", said=machine.said()) from None
    except BaseException:
        guest.close()
        raise
    return guest


def set_time(guest: FramedGuest) -> None:
    """Sets the machine's clock, and again if that took so long that the time was out of date. Raises GuestError."""
    for _ in range(CLOCK_TRIES):
        now = time.time_ns()
        guest.set_clock(now)
        if time.time_ns() - now < CLOCK_NS:
            return
