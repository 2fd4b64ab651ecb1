"""A running machine, and how it is started: in a room like that of any sandbox, with a second guest inside."""

from __future__ import annotations

import re
import time
from abc import abstractmethod

from sandbox.engines.base import Capabilities, GuestRunning, Started
from sandbox.engines.bubblewrap import Bubblewrap
from sandbox.engines.machine.packages import show_packages
from sandbox.engines.machine.room_paths import DIRECTORY
from sandbox.engines.machine.setup import limit_room
from sandbox.errors import Message, SandboxClosed, SandboxError, WallError
from sandbox.guest.framed import FramedGuest
from sandbox.layout.etc import tenant
from sandbox.layout.system import HostSystem
from sandbox.plan.plan import Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from sandbox.engines.local import LocalRunning, LocalStart
    from sandbox.engines.machine.path_search import PathSearch
    from sandbox.engines.machine.processes import RoomProcesses
    from sandbox.engines.usage import Usage
    from sandbox.guest.process import Process

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

    def __init__(
        self, room: LocalRunning, guest: FramedGuest, machine: RoomProcesses, search: PathSearch, memory_mb: int
    ) -> None:
        super().__init__(guest)
        self._search = search
        self._memory_mb = memory_mb
        self.kills = 0  # by the machine's kernel, for lack of memory
        self._room = room
        self._machine = machine
        self._closed = False
        self.unheld = room.unheld
        self.pid = room.pid
        self.missed = room.missed
        self.tripwires = room.tripwires

    def start(self, request: dict[str, object], name: str, stdio: Sequence[int] = ()) -> Process:
        lacking = self._search.lacking(request)
        return super().start({**request, "lacking": lacking} if lacking else request, name, stdio)

    def take_sockets(self) -> Mapping[str, _socket.socket]:
        return self._room.take_sockets()

    def take_devices(self) -> dict[str, int]:
        return self._room.take_devices()

    def alive(self) -> bool:
        return super().alive() and self._room.alive()

    def out_of_memory(self) -> str | None:
        """A message about kills since the last call: by the room's limit, or by the machine's own kernel."""
        return self._room.out_of_memory() or self._killed_inside()

    def _killed_inside(self) -> str | None:
        try:
            told = self._guest.file("read", b"/proc/vmstat", size=1 << 16)[0]["data"]
        except (OSError, SandboxError):
            return None  # no memory for that, either
        found = re.search(rb"^oom_kill (\d{1,18})$", told, re.MULTILINE)
        before, self.kills = self.kills, int(found[1]) if found else 0
        if self.kills <= before:
            return None
        return Message("out of memory: the limit is {limit}", limit=f"{self._memory_mb} MiB")

    def usage(self) -> Usage:
        return self._room.usage()

    def report_socket(self) -> _socket.socket:
        return self._room.report_socket()

    def reports(self, patience: float | None = None) -> Iterator[dict[str, Any]]:
        return self._room.reports(patience)

    def finish(self) -> None:
        self._room.finish()

    def stop_tenants(self) -> None:
        self._room.stop_tenants()

    def let_tenants_go(self) -> None:
        self._room.let_tenants_go()

    def close(self) -> None:
        """Ends the room and everything in it."""
        if self._closed:
            return
        self._closed = True
        self._room.close()
        self._guest.close()
        self._machine.close()
        self._search.close()
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
            if plan.user == "root" and plan.image is None:
                show_packages(plan)
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


def greeted(guest: FramedGuest, machine: RoomProcesses, greet: Callable[[FramedGuest], None]) -> FramedGuest:
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
