"""The engine: an ordinary room, QEMU in it, and a second guest in the machine, which runs the commands.

The room's guest handles the network, the files and the limits; the machine's guest runs commands and file operations.
A tenant who breaks out of the machine is in QEMU's process, which has fewer rights than a tenant of the room.
"""

from __future__ import annotations

import os

from sandbox.engines.base import Engine, Finding, Pausable
from sandbox.engines.bubblewrap import Bubblewrap
from sandbox.engines.machine.acceleration import DEVICE, KVM, why_not
from sandbox.engines.machine.kernel import find_kernel
from sandbox.engines.machine.path_search import PathSearch
from sandbox.engines.machine.room_paths import DIRECTORY
from sandbox.engines.machine.running import MachineRunning, MachineStart, bare_room, capabilities, greeted
from sandbox.engines.machine.setup import identity_of, machine_setup, memory_mb, server_words
from sandbox.engines.qemu.command import command, find_qemu
from sandbox.engines.qemu.elsewhere import moved
from sandbox.engines.qemu.elsewhere import show as show_elsewhere
from sandbox.engines.qemu.monitor import Monitor
from sandbox.engines.qemu.room import Machine
from sandbox.engines.qemu.saved import LivingMachine, SavedMachine
from sandbox.engines.qemu.servers import hear_server, tell_server
from sandbox.engines.qemu.template import Template, template
from sandbox.engines.qemu.warm import stale
from sandbox.errors import EngineUnavailable, Message, message_of
from sandbox.guest.framed import FramedGuest
from sandbox.plan.plan import Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sandbox.engines.local import LocalRunning

TABLE_MOST = 1 << 16  # bytes of names and more that a clone of a machine that was set up can forget in one request


class QemuRunning(MachineRunning, Pausable):
    """A machine that QEMU runs."""

    def __init__(
        self, room: LocalRunning, guest: FramedGuest, machine: Machine, search: PathSearch, living: LivingMachine
    ) -> None:
        super().__init__(room, guest, machine, search, living.memory_mb)
        self._living = living
        self.kills = living.kills

    def pause(self) -> None:
        self._living.pause()

    def resume(self) -> None:
        self._living.resume()

    def save(self, directory: str) -> list[str]:
        self._living.kills = self.kills
        return self._living.save(directory)

    def ended(self) -> None:
        self._living.close()


class QemuStart(MachineStart):
    def prepare(self, plan: Plan) -> Callable[[LocalRunning], QemuRunning]:
        setup = machine_setup(plan)
        chosen = _template(plan, setup)
        if plan.saved is not None:
            chosen = SavedMachine(plan.saved, chosen)
        _furnish(plan, chosen)
        return lambda room: _start_machine(room, plan, chosen, setup)


class Qemu(Engine):
    name = "qemu"
    can = capabilities("machine")

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
    "`engine: auto` does not choose them then"
)


def _template(plan: Plan, setup: dict[str, Any]) -> Template:
    """The template for this plan."""
    memory = memory_mb(plan)
    cpus = max(1, round(plan.limits.cpus or 1))
    beforehand = _beforehand(plan, setup)
    chosen = template(memory, cpus, bare_room, beforehand)
    if beforehand is None or len(chosen.nodes()) <= TABLE_MOST:
        return chosen
    return template(memory, cpus, bare_room)


def _furnish(plan: Plan, chosen: Template) -> None:
    """Adds the template to the room. QEMU must open its memory for writing, but is kept from writing to it."""
    plan.show(chosen.directory, DIRECTORY, False)
    plan.show(chosen.memory, f"{DIRECTORY}/ram", True)
    plan.writable.append(f"{DIRECTORY}/ram")
    if plan.image is not None:
        show_elsewhere(plan)
    if chosen.accelerated == KVM:
        plan.show(DEVICE, DEVICE, True, device=True)  # the file server cannot open it, and there are no other tenants
        plan.writable.append(DEVICE)


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
        if saved is None and setup["machine"]["system"]:
            setup["machine"]["stale"] = stale(chosen.nodes())  # now: QEMU needs a while to start
        asked = Monitor(machine.monitor)
        asked.give("state", state)
        asked.ask("migrate-incoming", uri="fd:state")  # and then it runs

        def greet(guest: FramedGuest) -> None:
            identity = identity_of(plan)
            if saved is not None:
                guest.take_up(identity)
            elif set_up:
                hear_server(machine.servers[1])
                guest.take_up({**identity, "rlimits": setup["rlimits"], "machine": _settled(setup)})
            else:
                guest.set_up({**setup, "machine": {**setup["machine"], **identity}})

        guest = greeted(FramedGuest(machine.control), machine, greet)
        assert room.pid is not None
        living = LivingMachine(asked, guest, machine.servers, room.pid, chosen)
        return QemuRunning(room, guest, machine, PathSearch(room.pid, plan, setup), living)
    except BaseException:
        if machine is not None:
            machine.close()
        raise
    finally:
        os.close(state)


def _in_room(room: LocalRunning, words: list[str], plan: Plan, saved: bool, set_up: bool) -> Machine:
    """Starts QEMU and the file servers. With an image, the machine knows no files of the host's system."""
    if plan.image is None:
        return Machine(room, words, server_words(plan), saved=saved, set_up=set_up)
    words, environment = moved(words)
    return Machine(room, words, server_words(plan), saved=saved, nodes=os.devnull, environment=environment)


def _beforehand(plan: Plan, setup: dict[str, Any]) -> dict[str, Any] | None:
    """The part of a set-up that can be done in the template, the same for most machines; None for the others."""
    machine = setup["machine"]
    if plan.image is not None or not machine["system"] or not setup["network"] or setup["loopback_ports"]:
        return None
    return {**setup, "rlimits": [], "machine": {**machine, "stale": [], "shown": []}}


def _settled(setup: dict[str, Any]) -> dict[str, Any]:
    return {name: setup["machine"][name] for name in ("stale", "shown")}
