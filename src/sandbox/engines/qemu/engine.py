"""The engine: an ordinary room, QEMU in it, and a second guest in the machine, which runs the commands.

The room's guest has the network, the files and the limits; the machine's guest runs commands and file operations. A
tenant who breaks the machine's kernel is in QEMU's process, which may do less than a tenant of the room.
"""

from __future__ import annotations

import os
import resource
import time

from sandbox.config.model import Limits
from sandbox.engines.base import Capabilities, Engine, Finding, GuestRunning, Pausable, Started
from sandbox.engines.bubblewrap import Bubblewrap
from sandbox.engines.qemu.acceleration import DEVICE, KVM, why_not
from sandbox.engines.qemu.command import DIRECTORY, command, find_qemu
from sandbox.engines.qemu.elsewhere import PLACE as ELSEWHERE
from sandbox.engines.qemu.elsewhere import moved
from sandbox.engines.qemu.elsewhere import show as show_elsewhere
from sandbox.engines.qemu.kernel import find_kernel
from sandbox.engines.qemu.monitor import Monitor
from sandbox.engines.qemu.room import Machine
from sandbox.engines.qemu.saved import LivingMachine, SavedMachine, set_time
from sandbox.engines.qemu.servers import hear_server, tell_server
from sandbox.engines.qemu.template import Template, template
from sandbox.engines.qemu.warm import stale
from sandbox.errors import EngineUnavailable, Message, SandboxClosed, WallError, message_of
from sandbox.guest.framed import FramedGuest
from sandbox.layout.etc import tenant
from sandbox.layout.system import SYSTEM, HostSystem
from sandbox.plan.mount_operations import Fuse
from sandbox.plan.plan import Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Iterator, Mapping
    from typing import Any

    from sandbox.engines.local import LocalRunning, LocalStart
    from sandbox.engines.usage import Usage

MEMORY_MB = 1024  # of a machine for which nothing was asked
STALE_MOST = 500  # names that a clone can be told to forget after its set-up
OWN_MB = 256  # that QEMU needs besides


class MachineRunning(GuestRunning):
    """A machine in its room. Commands and files are the machine's guest's, all else is the room's."""

    _guest: FramedGuest

    def __init__(self, room: LocalRunning, guest: FramedGuest) -> None:
        super().__init__(guest)
        self._room = room
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

    def end(self) -> bool:
        """Ends the room and everything in it; False when that was done before."""
        if self._closed:
            return False
        self._closed = True
        self._room.close()
        self._guest.close()
        return True


class QemuRunning(MachineRunning, Pausable):
    """A machine that QEMU runs."""

    def __init__(self, room: LocalRunning, guest: FramedGuest, machine: Machine, living: LivingMachine) -> None:
        super().__init__(room, guest)
        self._machine = machine
        self._living = living

    def pause(self) -> None:
        self._living.pause()

    def resume(self) -> None:
        self._living.resume()

    def save(self, directory: str) -> list[str]:
        return self._living.save(directory)

    def close(self) -> None:
        if self.end():
            self._machine.close()
            self._living.close()


class QemuStart(Started):
    """A room at work, before anybody has decided what is to be built."""

    def __init__(self, room: LocalStart) -> None:
        self._room = room

    def build(self, plan: Plan) -> QemuRunning:
        try:
            setup = machine_setup(plan)
            chosen = _template(plan, setup)
            if plan.saved is not None:
                chosen = SavedMachine(plan.saved, chosen)
        except BaseException:
            self._room.abandon()
            raise
        limits, pids = plan.limits, plan.pids
        _furnish(plan, chosen)
        room = self._room.build(plan)
        plan.limits, plan.pids = limits, pids
        try:
            return _start_machine(room, plan, chosen, setup)
        except BaseException:
            room.close()
            raise

    def abandon(self) -> None:
        self._room.abandon()


class Qemu(Engine):
    name = "qemu"
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
        checkpoint="machine",
    )

    def start(self) -> QemuStart:
        find_qemu()
        return QemuStart(Bubblewrap().start())

    def findings(self) -> list[Finding]:
        return [*Bubblewrap().findings(), *findings()]


def findings() -> list[Finding]:
    """What `sandbox doctor` says about virtual machines."""
    found = []
    for name, look in (("QEMU", find_qemu), ("kernel for virtual machines", lambda: find_kernel().version)):
        try:
            found.append(Finding(name, True, look(), needed=False))
        except EngineUnavailable as problem:
            found.append(Finding(name, False, "", message_of(problem), needed=False))
    if all(one.ok for one in found):
        lacking = why_not()
        found.append(
            Finding("acceleration", True, "KVM")
            if lacking is None
            else Finding("acceleration", False, lacking, EMULATED_COST, needed=False)
        )
    return found


EMULATED_COST = Message(
    "virtual machines are emulated: programs that compute take 10 to 30 times as long, and a start takes 0.3 s; "
    "`engine: auto` takes none then"
)


def _template(plan: Plan, setup: dict[str, Any]) -> Template:
    """The template for this plan; `setup` then says what has changed on the host since it was made."""
    memory_mb = -(-(plan.limits.memory or MEMORY_MB << 20) >> 20)
    cpus = max(1, round(plan.limits.cpus or 1))
    machine, beforehand = setup["machine"], _beforehand(plan, setup)
    chosen = template(memory_mb, cpus, _bare_room, beforehand)
    machine["stale"] = stale(chosen.nodes()) if machine["system"] else []
    if beforehand is None or len(machine["stale"]) <= STALE_MOST:
        return chosen
    chosen = template(memory_mb, cpus, _bare_room)
    machine["stale"] = stale(chosen.nodes())
    return chosen


def _furnish(plan: Plan, chosen: Template) -> None:
    """What the room shows besides: the template, whose memory QEMU must open for writing (it is held from doing so)."""
    plan.show(chosen.directory, DIRECTORY, False)
    plan.show(chosen.memory, f"{DIRECTORY}/ram", True)
    plan.writable.append(f"{DIRECTORY}/ram")
    if plan.image is not None:
        show_elsewhere(plan)
    if chosen.accelerated == KVM:
        plan.show(DEVICE, DEVICE, True, device=True)  # the file server cannot open it, and there are no other tenants
        plan.writable.append(DEVICE)
    limit_room(plan)


def limit_room(plan: Plan) -> None:
    """The room's limits around a machine's: its own kernel holds the others."""
    limits = Limits()
    limits.cpus = plan.limits.cpus
    limits.memory = None if plan.limits.memory is None else plan.limits.memory + (OWN_MB << 20)
    plan.limits, plan.pids = limits, None


def _bare_room(directory: str) -> LocalRunning:
    """A room that shows the system and one directory, for programs of ours alone."""
    plan = Plan()
    plan.id = "template"
    plan.user, plan.uid, plan.gid = tenant("user")
    plan.scratch = [("/tmp", 0o1777), ("/run", 0o755)]
    plan.scratch_size = 1 << 26
    HostSystem().show(plan, "/tmp")
    plan.show(directory, DIRECTORY, True)
    plan.writable = ["/tmp", DIRECTORY, "/dev", "/proc"]
    plan.network = False
    return Bubblewrap().start().build(plan)


def _start_machine(room: LocalRunning, plan: Plan, chosen: Template, setup: dict[str, Any]) -> QemuRunning:
    state = chosen.open_state()
    saved = chosen if isinstance(chosen, SavedMachine) else None
    machine = None
    try:
        of_saved, set_up = saved is not None, chosen.setup is not None
        words = command(chosen.memory_mb, chosen.cpus, chosen.accelerated, template=False, saved=of_saved)
        machine = _in_room(room, words, plan, of_saved, set_up)
        if saved is not None:
            saved.tell_servers(machine.servers)
        elif set_up:
            tell_server(machine.servers[1], chosen.known())
        asked = Monitor(machine.monitor)
        asked.give("state", state)
        asked.ask("migrate-incoming", uri="fd:state")  # and then it runs
        guest = FramedGuest(machine.control)
        try:
            identity = {**identity_of(plan), "time_ns": time.time_ns()}
            if saved is not None:
                guest.take_up(identity)
            elif set_up:
                hear_server(machine.servers[1])
                guest.take_up({**identity, "rlimits": setup["rlimits"], "machine": _settled(setup)})
            else:
                guest.set_up({**setup, "machine": {**setup["machine"], **identity}})
            set_time(guest)  # until then the machine was being loaded
        except SandboxClosed:
            guest.close()
            raise WallError("the virtual machine ended: {said}", said=machine.said()) from None
        except BaseException:
            guest.close()
            raise
        assert room.pid is not None
        return QemuRunning(room, guest, machine, LivingMachine(asked, guest, machine.servers, room.pid, chosen))
    except BaseException:
        if machine is not None:
            machine.close()
        raise
    finally:
        os.close(state)


def _in_room(room: LocalRunning, words: list[str], plan: Plan, saved: bool, set_up: bool) -> Machine:
    """QEMU and the file servers, started. Beside an image, no file of the host's system is known to the machine."""
    if plan.image is None:
        return Machine(room, words, fixed_directories(plan), saved=saved, set_up=set_up)
    words, environment = moved(words)
    return Machine(room, words, fixed_directories(plan), saved=saved, nodes=os.devnull, environment=environment)


def fixed_directories(plan: Plan) -> list[str]:
    """Directories that nothing on the host changes while the machine lives, so that its kernel may remember them."""
    if plan.image is not None:
        return _fixed_of_image(plan, plan.image.source)
    return [bind.target for bind in plan.binds if bind.target in SYSTEM]


def _fixed_of_image(plan: Plan, root: str) -> list[str]:
    """The image's directories with nothing in them of the host's, or of this sandbox alone."""
    mounted = (*plan.layers, *plan.covers, *plan.served, *plan.after_seal)
    others = [*(bind.target for bind in plan.binds), *(one.path for one in mounted)]
    others += [*(path for path, _, _ in plan.files), *(path for path, _ in plan.scratch)]
    tops = {path.split("/")[1] for path in others}
    return [f"/{name}" for name in os.listdir(root) if name not in tops]


def identity_of(plan: Plan) -> dict[str, object]:
    """What no two machines have in common, besides the time."""
    return {"entropy": os.urandom(64), "hostname": plan.hostname}


def machine_setup(plan: Plan) -> dict[str, Any]:
    """What the machine's guest is told, but for who it is."""
    scratch = [(path, mode) for path, mode in plan.scratch if path in ("/tmp", "/run", "/dev/shm")]
    root = plan.user == "root"
    layered = root or (plan.image is not None and not plan.sealed)  # tenants may change everything, in memory
    system = [] if layered else _system(plan)  # they see everything by way of the layer
    places = [""] if layered else [*(path for path, _ in scratch), *system]
    seen = _seen_again(plan, root)
    seen += [] if layered else [one.path for one in plan.after_seal]
    return {
        "walls": True,
        "uid": plan.uid,
        "gid": plan.gid,
        "network": plan.network,
        "rlimits": rlimits(plan.limits, plan.pids),
        "loopback_ports": plan.loopback_ports,
        "machine": {
            "root": root,
            **({"layer": plan.image.size if plan.image is not None else 0} if layered else {}),
            "scratch": [[path.encode(), mode, plan.scratch_size] for path, mode in scratch],
            "system": [path.encode() for path in system],
            "stale": [],
            "shown": _nested(seen, places),
        },
    }


def _seen_again(plan: Plan, root: bool) -> list[str]:
    """What the room shows of the host, to be shown again where the machine has something else of its own."""
    machine = (DIRECTORY, f"{DIRECTORY}/ram", *(SYSTEM if root else ()))
    shown = [bind.target for bind in plan.binds if (bind.writable or not root) and not bind.device]
    shown = [path for path in shown if path not in machine and not path.startswith(f"{ELSEWHERE}/")]
    return shown + [one.path for one in plan.served if isinstance(one, Fuse)]


def _nested(seen: list[str], places: list[str]) -> list[bytes]:
    """What of it lies within places that are the machine's own."""
    nested = sorted({path for path in seen if any(path.startswith(f"{one}/") for one in places)})
    outermost = [one for one in nested if not any(one.startswith(f"{other}/") for other in nested)]
    return [os.fsencode(path) for path in outermost]


def _beforehand(plan: Plan, setup: dict[str, Any]) -> dict[str, Any] | None:
    """The part of a set-up that the template can have behind it, for most machines; None where it is another's."""
    machine = setup["machine"]
    if plan.image is not None or not machine["system"] or not setup["network"] or setup["loopback_ports"]:
        return None
    return {**setup, "rlimits": [], "machine": {**machine, "stale": [], "shown": []}}


def _settled(setup: dict[str, Any]) -> dict[str, Any]:
    return {name: setup["machine"][name] for name in ("stale", "shown")}


def rlimits(limits: Limits, pids: int | None) -> list[list[int]]:
    """What the machine's kernel holds tenants to. Its memory and processors are those that were asked for."""
    wanted = (
        (resource.RLIMIT_FSIZE, limits.file_size),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, None if pids is None else pids + 1),  # the guest is one of them
    )
    return [[kind, most, most] for kind, most in wanted if most is not None]


def _system(plan: Plan) -> list[str]:
    """The system's directories that the template has in memory, where the room shows the host's own, all of them.

    Memory does not forget: where something of them is covered, the machine sees what the room shows and nothing else.
    """
    shown = [bind.target for bind in plan.binds if bind.target in SYSTEM and bind.source == bind.target]
    covered = [one.path for one in (*plan.layers, *plan.covers, *plan.served)]
    return [] if any(path.startswith(f"{one}/") for path in covered for one in shown) else shown
