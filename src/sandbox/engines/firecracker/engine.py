"""The engine: an ordinary room, Firecracker in it, and a second guest in the machine, as that of QEMU.

What differs: the machine's streams are vsock instead of serial ports, its network is a card of the room's, whose other
end is in the room's network namespace, and Firecracker needs KVM. Its jailer is not used: the room is one.
"""

from __future__ import annotations

import os
import time

from sandbox.engines.base import Capabilities, Engine, Finding, Started
from sandbox.engines.bubblewrap import Bubblewrap
from sandbox.engines.firecracker.machine import RUN, TAP, FirecrackerMachine
from sandbox.engines.firecracker.template import snapshot
from sandbox.engines.qemu.acceleration import DEVICE, why_not
from sandbox.engines.qemu.command import DIRECTORY
from sandbox.engines.qemu.engine import (
    MEMORY_MB,
    MachineRunning,
    fixed_directories,
    identity_of,
    limit_room,
    machine_setup,
)
from sandbox.engines.qemu.kernel import find_kernel
from sandbox.engines.qemu.saved import set_time
from sandbox.errors import EngineUnavailable, Message, SandboxClosed, WallError, message_of
from sandbox.guest.framed import FramedGuest
from sandbox.layout.etc import tenant
from sandbox.layout.system import HostSystem
from sandbox.plan.plan import Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.engines.local import LocalRunning, LocalStart

# Not from PATH: a project could put a program there, which would run outside the walls.
PLACES = ("/usr/bin/firecracker", "/usr/local/bin/firecracker", "/opt/firecracker/firecracker")
TUN = "/dev/net/tun"
MISSING = Message(
    "Firecracker is not installed: put the `firecracker` program of a release into /usr/local/bin; "
    "`engine: qemu` needs none of it"
)


def find_firecracker() -> str:
    """The system's Firecracker. Raises EngineUnavailable."""
    found = next((path for path in PLACES if os.access(path, os.X_OK)), None)
    if found is None:
        raise EngineUnavailable(MISSING)
    return found


def check_host() -> None:
    """Raises EngineUnavailable when this machine cannot run Firecracker."""
    find_firecracker(), find_kernel()
    lacking = why_not()
    if lacking is not None:
        raise EngineUnavailable("Firecracker needs KVM: {reason}", reason=lacking)
    if not os.access(TUN, os.R_OK | os.W_OK):
        raise EngineUnavailable(
            "{device} is missing or not yours to open: run `modprobe tun` and `chmod 0666 {device}` as root", device=TUN
        )


class FirecrackerRunning(MachineRunning):
    """A machine in its room."""

    def __init__(self, room: LocalRunning, guest: FramedGuest, machine: FirecrackerMachine) -> None:
        super().__init__(room, guest)
        self._machine = machine

    def close(self) -> None:
        if self.end():
            self._machine.close()


class FirecrackerStart(Started):
    """A room at work, before anybody has decided what is to be built."""

    def __init__(self, room: LocalStart) -> None:
        self._room = room

    def build(self, plan: Plan) -> FirecrackerRunning:
        try:
            memory_mb = -(-(plan.limits.memory or MEMORY_MB << 20) >> 20)
            chosen = snapshot(find_firecracker(), memory_mb, _processors(plan.limits.cpus), _bare_room)
        except BaseException:
            self._room.abandon()
            raise
        limits, pids = plan.limits, plan.pids
        plan.show(chosen.directory, DIRECTORY, False)
        furnish(plan)
        limit_room(plan)
        room = self._room.build(plan)
        plan.limits, plan.pids = limits, pids
        try:
            return _start_machine(room, plan)
        except BaseException:
            room.close()
            raise

    def abandon(self) -> None:
        self._room.abandon()


class Firecracker(Engine):
    name = "firecracker"
    can = Capabilities(
        own_root=True,
        namespace=True,
        fuse=True,
        overlay=True,
        tripwires=True,
        programs=False,
        gate="sockets",
        limits=True,
        descriptors=False,
    )

    def answers(self) -> bool:
        check_host()
        return True

    def start(self) -> FirecrackerStart:
        check_host()
        return FirecrackerStart(Bubblewrap().start())

    def findings(self) -> list[Finding]:
        return [*Bubblewrap().findings(), finding(needed=True)]


def finding(*, needed: bool = False) -> Finding:
    """What `sandbox doctor` says about Firecracker."""
    try:
        check_host()
    except EngineUnavailable as problem:
        return Finding("Firecracker", False, "", message_of(problem), needed=needed)
    return Finding("Firecracker", True, find_firecracker(), needed=needed)


def furnish(plan: Plan) -> None:
    """What a room needs for Firecracker besides its files: its devices, a card, and a place for its sockets."""
    for device in (DEVICE, TUN):
        if os.path.exists(device):
            plan.show(device, device, True, device=True)  # the file servers cannot open it, and nobody else is there
            plan.writable.append(device)
    plan.scratch.append((RUN, 0o700))
    plan.writable.append(RUN)
    plan.tap = TAP


def _processors(asked: float | None) -> int:
    """One, or an even number of them, as Firecracker wants it."""
    count = max(1, round(asked or 1))
    return min(count + count % 2, 32) if count > 1 else 1


def _bare_room(directory: str) -> LocalRunning:
    """A room that shows the system and one directory, for programs of ours alone."""
    plan = Plan()
    plan.id = "template"
    plan.user, plan.uid, plan.gid = tenant("user")
    plan.scratch = [("/tmp", 0o1777)]
    plan.scratch_size = 1 << 26
    HostSystem().show(plan, "/tmp")
    plan.show(directory, DIRECTORY, True)
    plan.writable = ["/tmp", DIRECTORY, "/dev", "/proc"]
    plan.network = False
    furnish(plan)
    return Bubblewrap().start().build(plan)


def _start_machine(room: LocalRunning, plan: Plan) -> FirecrackerRunning:
    assert room.pid is not None
    machine = FirecrackerMachine(room, room.pid)
    try:
        machine.api.load(f"{DIRECTORY}/state", f"{DIRECTORY}/memory")
        setup = machine_setup(plan)
        guest = FramedGuest(machine.connect(fixed_directories(plan)))
        try:
            guest.greet()
            identity = {**identity_of(plan), "time_ns": time.time_ns()}
            guest.set_up({**setup, "machine": {**setup["machine"], **identity}})
            set_time(guest)
        except SandboxClosed:
            guest.close()
            raise WallError("the virtual machine ended: {said}", said=machine.said()) from None
        except BaseException:
            guest.close()
            raise
        return FirecrackerRunning(room, guest, machine)
    except BaseException:
        machine.close()
        raise
