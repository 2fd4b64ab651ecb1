"""The engine: an ordinary room, QEMU in it, and a second guest in the machine, which runs the commands.

The room's guest has the network, the files and the limits; the machine's guest runs commands and file operations. A
tenant who breaks the machine's kernel is in QEMU's process, which may do less than a tenant of the room.
"""

from __future__ import annotations

import os
import socket
import time

from sandbox.config.model import Limits
from sandbox.engines.base import Capabilities, Engine, Finding, Running, Started
from sandbox.engines.bubblewrap import Bubblewrap
from sandbox.engines.qemu.command import DIRECTORY, command, find_qemu
from sandbox.engines.qemu.kernel import find_kernel
from sandbox.engines.qemu.monitor import Monitor
from sandbox.engines.qemu.room import start_file_server, start_qemu
from sandbox.engines.qemu.template import Template, template
from sandbox.errors import EngineUnavailable, SandboxClosed, WallError
from sandbox.guest.framed import FramedGuest
from sandbox.layout.etc import tenant
from sandbox.layout.system import SYSTEM, HostSystem
from sandbox.plan.plan import HOSTNAME, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from sandbox.engines.local import LocalRunning, LocalStart
    from sandbox.engines.usage import Usage
    from sandbox.guest.process import Process

MEMORY_MB = 1024  # of a machine for which nothing was asked
OWN_MB = 256  # that QEMU needs besides


class QemuRunning(Running):
    """A machine in its room."""

    def __init__(self, room: LocalRunning, guest: FramedGuest, helpers: Sequence[tuple[Process, int]]) -> None:
        self._room = room
        self._guest = guest
        self._helpers = helpers
        self._closed = False
        self.unheld = room.unheld
        self.pid = room.pid
        self.missed = room.missed
        self.tripwires = room.tripwires

    def start(self, request: dict[str, object], name: str, stdio: Sequence[int] = ()) -> Process:
        return self._guest.start(request, name, stdio)

    def file(self, operation: str, path: bytes, **more: object) -> tuple[dict[str, Any], list[int]]:
        return self._guest.file(operation, path, **more)

    def null(self) -> int | None:
        return self._guest.null

    def take_sockets(self) -> Mapping[str, _socket.socket]:
        return self._room.take_sockets()

    def take_devices(self) -> dict[str, int]:
        return self._room.take_devices()

    def dial(self, address: str, port: int) -> socket.socket:
        return self._guest.dial(address, port)

    def out_of_memory(self) -> str | None:
        return self._room.out_of_memory()

    def usage(self) -> Usage:
        return self._room.usage()

    def reports(self) -> Iterator[dict[str, Any]]:
        return self._room.reports()

    def finish(self) -> None:
        self._room.finish()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._room.close()
        self._guest.close()
        for process, errors in self._helpers:
            process.close()
            os.close(errors)


class QemuStart(Started):
    """A room at work, before anybody has decided what is to be built."""

    def __init__(self, room: LocalStart) -> None:
        self._room = room

    def build(self, plan: Plan) -> QemuRunning:
        try:
            memory_mb = -(-(plan.limits.memory or MEMORY_MB << 20) >> 20)
            chosen = template(memory_mb, max(1, round(plan.limits.cpus or 1)), _bare_room)
        except BaseException:
            self._room.abandon()
            raise
        limits, pids = plan.limits, plan.pids
        _furnish(plan, chosen)
        room = self._room.build(plan)
        plan.limits, plan.pids = limits, pids
        try:
            return _start_machine(room, plan, chosen)
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
        gate="sockets",
        limits=True,
        descriptors=False,
    )

    def start(self) -> QemuStart:
        find_qemu()
        return QemuStart(Bubblewrap().start())

    def findings(self) -> list[Finding]:
        found = Bubblewrap().findings()
        for name, look in (("QEMU", find_qemu), ("kernel", lambda: find_kernel().version)):
            try:
                found.append(Finding(name, True, look(), needed=False))
            except EngineUnavailable as problem:
                found.append(Finding(name, False, str(problem), needed=False))
        return found


def _furnish(plan: Plan, chosen: Template) -> None:
    """What the room shows besides: the template, whose memory QEMU must open for writing (it is held from doing so)."""
    plan.show(chosen.directory, DIRECTORY, False)
    plan.show(chosen.memory, f"{DIRECTORY}/ram", True)
    plan.writable.append(f"{DIRECTORY}/ram")
    limits = Limits()
    limits.cpus = plan.limits.cpus
    limits.memory = None if plan.limits.memory is None else plan.limits.memory + (OWN_MB << 20)
    plan.limits, plan.pids = limits, None


def _bare_room(directory: str) -> Running:
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
    return Bubblewrap().start().build(plan)


def _start_machine(room: LocalRunning, plan: Plan, chosen: Template) -> QemuRunning:
    ends = [socket.socketpair() for _ in range(3)]
    control, files, monitor = (ours for ours, _ in ends)
    state = chosen.open_state()
    helpers = []
    try:
        given = [theirs.fileno() for _, theirs in ends]
        words = command(chosen.memory_mb, chosen.cpus, template=False)
        helpers.append(start_qemu(room, words, given))
        helpers.append(start_file_server(room, files, _fixed(plan)))
        asked = Monitor(monitor)
        asked.give("state", state)
        asked.ask("migrate-incoming", uri="fd:state")  # and then it runs
        guest = FramedGuest(control)
        try:
            guest.set_up(_setup(plan))
        except SandboxClosed:
            guest.close()
            raise WallError("the virtual machine ended: {said}", said=_said(helpers[0][1])) from None
        except BaseException:
            guest.close()
            raise
        return QemuRunning(room, guest, helpers)
    except BaseException:
        for process, errors in helpers:
            process.close()
            os.close(errors)
        control.close()
        raise
    finally:
        os.close(state)
        files.close()
        monitor.close()
        for _, theirs in ends:
            theirs.close()


def _said(errors: int) -> str:
    os.set_blocking(errors, False)
    try:
        return os.read(errors, 4096).decode(errors="replace").strip() or "no message"
    except OSError:
        return "no message"


def _fixed(plan: Plan) -> list[str]:
    """Directories that nothing on the host changes while the machine lives, so that its kernel may remember them."""
    return [bind.target for bind in plan.binds if bind.target in SYSTEM]


def _setup(plan: Plan) -> dict[str, object]:
    scratch = [(path, mode) for path, mode in plan.scratch if path in ("/tmp", "/run")]
    places = [path for path, _ in scratch]
    nested = sorted({bind.target for bind in plan.binds if any(bind.target.startswith(f"{one}/") for one in places)})
    nested = [one for one in nested if not any(one.startswith(f"{other}/") for other in nested)]
    return {
        "walls": True,
        "uid": plan.uid,
        "gid": plan.gid,
        "network": plan.network,
        "rlimits": [],
        "machine": {
            "time_ns": time.time_ns(),
            "entropy": os.urandom(64),
            "hostname": HOSTNAME,
            "root": plan.user == "root",
            "scratch": [[path.encode(), mode, plan.scratch_size] for path, mode in scratch],
            "shown": [os.fsencode(path) for path in nested],
        },
    }
