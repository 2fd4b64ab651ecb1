"""The engine: an ordinary room, Firecracker in it, and a second guest in the machine, as with QEMU.

The differences: the machine's streams are vsock instead of serial ports, its network card is a tap device in the room's
network namespace, and Firecracker needs KVM. Its jailer is not used: the room does that job.
"""

from __future__ import annotations

import os

from sandbox.engines.base import Engine, Finding
from sandbox.engines.bubblewrap import Bubblewrap
from sandbox.engines.firecracker.machine import TAP, FirecrackerMachine
from sandbox.engines.firecracker.template import snapshot
from sandbox.engines.machine.acceleration import DEVICE, why_not
from sandbox.engines.machine.kernel import find_kernel
from sandbox.engines.machine.path_search import PathSearch
from sandbox.engines.machine.room_paths import DIRECTORY, RUN
from sandbox.engines.machine.running import MachineRunning, MachineStart, bare_room, capabilities, greeted
from sandbox.engines.machine.setup import identity_of, machine_setup, memory_mb, server_words
from sandbox.errors import EngineUnavailable, Message, message_of
from sandbox.guest.framed import FramedGuest
from sandbox.plan.plan import Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.engines.local import LocalRunning

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


class FirecrackerStart(MachineStart):
    def prepare(self, plan: Plan) -> Callable[[LocalRunning], MachineRunning]:
        if plan.image is not None:
            raise EngineUnavailable("`engine: firecracker` runs the host's system only: an image needs `engine: qemu`")
        cpus = _processors(plan.limits.cpus)
        chosen = snapshot(find_firecracker(), memory_mb(plan), cpus, lambda directory: bare_room(directory, furnish))
        plan.show(chosen.directory, DIRECTORY, False)
        furnish(plan)
        return lambda room: _start_machine(room, plan)


class Firecracker(Engine):
    name = "firecracker"
    can = capabilities("")

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
    """Adds to the plan what Firecracker needs besides its files: devices, a tap, and a directory for its sockets."""
    for device in (DEVICE, TUN):
        if os.path.exists(device):
            plan.show(device, device, True, device=True)  # file servers cannot open it, and there are no other tenants
            plan.writable.append(device)
    plan.scratch.append((RUN, 0o700))
    plan.writable.append(RUN)
    plan.tap = TAP


def _processors(asked: float | None) -> int:
    """One, or an even number, as Firecracker requires."""
    count = max(1, round(asked or 1))
    return min(count + count % 2, 32) if count > 1 else 1


def _start_machine(room: LocalRunning, plan: Plan) -> MachineRunning:
    assert room.pid is not None
    machine = FirecrackerMachine(room, room.pid)

    setup = machine_setup(plan)

    def greet(guest: FramedGuest) -> None:
        guest.greet()
        guest.set_up({**setup, "machine": {**setup["machine"], **identity_of(plan)}})

    try:
        machine.api.load(f"{DIRECTORY}/state", f"{DIRECTORY}/memory")
        guest = greeted(FramedGuest(machine.connect(server_words(plan))), machine, greet)
        return MachineRunning(room, guest, machine, PathSearch(room.pid, plan, setup), memory_mb(plan))
    except BaseException:
        machine.close()
        raise
