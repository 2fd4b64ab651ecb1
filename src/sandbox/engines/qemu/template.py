"""Templates: a machine that has booted and waits for its first message, saved once and cloned from then on.

A template is a directory in the cache, named after a hash of everything it was made from. It is private to its owner,
made in another directory and then renamed, and checked before each use (machine/template_store.py).
"""

from __future__ import annotations

import os
import shutil
import time

from sandbox.engines.machine.acceleration import KVM, acceleration
from sandbox.engines.machine.initramfs import WARM, initramfs
from sandbox.engines.machine.kernel import find_kernel
from sandbox.engines.machine.template_store import keep, named
from sandbox.engines.qemu.command import command, find_qemu
from sandbox.engines.qemu.monitor import Monitor
from sandbox.engines.qemu.room import NODES, Machine
from sandbox.engines.qemu.servers import known_files
from sandbox.engines.qemu.steps import Steps
from sandbox.errors import SandboxClosed, WallError
from sandbox.guest import frames
from sandbox.guest.binary import guest_binary
from sandbox.guest.framed import FramedGuest
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sandbox.engines.base import Running
    from sandbox.engines.machine.kernel import InstalledKernel

KNOWN = "known"
FILES = ("ram", "state", "kernel", "initramfs", "guest", NODES, KNOWN)
REST = 2.0  # seconds for a new machine to finish deferred work, which every clone would repeat otherwise
BOOT_PATIENCE = 120.0  # seconds for an emulated machine on a busy host to boot


class Template:
    """A saved machine of a certain size.

    With a `setup` it was set up before it was saved, and its clones start faster: under emulation, translating the
    set-up's code costs more than running it.
    """

    def __init__(
        self, directory: str, memory_mb: int, cpus: int, accelerated: str, setup: dict[str, Any] | None = None
    ) -> None:
        self.directory = directory
        self.setup = setup
        self.accelerated = accelerated  # "kvm" or "tcg"
        self.memory_mb = memory_mb
        self.cpus = cpus
        self.kills = 0  # by its kernel, for lack of memory

    @property
    def memory(self) -> str:
        """The file with the machine's memory."""
        return os.path.join(self.directory, "ram")

    def nodes(self) -> bytes:
        """The table of system files that the machine has in memory."""
        with open(os.path.join(self.directory, NODES), "rb") as file:
            return file.read()

    def known(self) -> bytes:
        """The state of the room's file server, for a machine that was set up."""
        with open(os.path.join(self.directory, KNOWN), "rb") as file:
            return file.read()

    def open_state(self) -> int:
        """A descriptor of the file with the saved state of processor and devices."""
        return os.open(os.path.join(self.directory, "state"), os.O_RDONLY | os.O_CLOEXEC)


def template(
    memory_mb: int, cpus: int, room: Callable[[str], Running], setup: dict[str, Any] | None = None
) -> Template:
    """The template of that size, made now if it does not exist. `room` builds a bare room that shows a directory.

    `setup`: what its machine is set up with, or None for one that clones set up themselves.

    Raises EngineUnavailable when QEMU or a kernel is missing, WallError when the machine does not boot.
    """
    kernel, guest, accelerated = find_kernel(), guest_binary(), acceleration()
    # Everything that a saved machine depends on. With KVM, that includes the host's processor.
    told = [command(memory_mb, cpus, accelerated, template=True, for_root=setup is None), list(WARM), repr(setup)]
    inputs = (find_qemu(), kernel.image, kernel.list, guest)
    directory = named(told, inputs, processor=accelerated == KVM)
    made = Template(directory, memory_mb, cpus, accelerated, setup)
    keep(directory, FILES, lambda work: _make(work, made, kernel, guest, room))
    return made


def _make(work: str, made: Template, kernel: InstalledKernel, guest: str, room: Callable[[str], Running]) -> None:
    told = Steps(_("making a virtual machine to clone, once"), 4)
    shutil.copyfile(kernel.image, os.path.join(work, "kernel"))
    shutil.copy(guest, os.path.join(work, "guest"))
    with open(os.path.join(work, "initramfs"), "wb") as file:
        file.write(initramfs(kernel, guest))
    _boot_and_save(work, made, room, told)
    for name in ("console", "ready"):
        if os.path.exists(os.path.join(work, name)):
            os.unlink(os.path.join(work, name))
    told.done()


def _boot_and_save(work: str, made: Template, room: Callable[[str], Running], told: Steps) -> None:
    running = room(work)
    state = os.open(os.path.join(work, "state"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        words = _boot_command(work, made)
        machine = Machine(running, ["--template", *words], ())
        try:
            told.next()
            guest = _booted(machine, work)
            told.next()
            with open(os.path.join(work, KNOWN), "wb") as file:
                if made.setup is not None:
                    guest.set_up({**made.setup, "machine": {**made.setup["machine"], **_nobody()}})
                    _rehearse(guest)
                    guest.hold()
                    file.write(known_files(machine.servers[1]))
            told.next()
            _save(Monitor(machine.monitor), state)
            machine.end()
            guest.close()
        finally:
            machine.close()
    finally:
        os.close(state)
        running.close()


def _boot_command(work: str, made: Template) -> list[str]:
    khz = _khz(os.path.join(work, "guest"))
    for_root = made.setup is None  # one that was set up is an ordinary user's
    return command(made.memory_mb, made.cpus, made.accelerated, template=True, khz=khz, for_root=for_root)


def _khz(guest: str) -> int:
    import subprocess

    return int(subprocess.run([guest, "--khz"], capture_output=True, check=True).stdout)


def _rehearse(guest: FramedGuest) -> None:
    """Runs one command, so that the guest has allocated what it needs, and then waits for deferred work to finish."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        request: dict[str, object] = {"argv": [b"/usr/bin/true"], "env": [], "cwd": b"/"}
        process = guest.start(request, "true", (null, null, null))
        process.wait()
        process.close()
    finally:
        os.close(null)
    time.sleep(REST)


def _nobody() -> dict[str, object]:
    """An identity for a machine that no tenant will ever have."""
    return {"time_ns": time.time_ns(), "entropy": os.urandom(64), "hostname": "template"}


def _booted(machine: Machine, work: str) -> FramedGuest:
    """Waits for the machine's guest to send hello, and returns the guest. Raises WallError."""
    machine.control.settimeout(BOOT_PATIENCE)
    try:
        message, _ = frames.receive(machine.control)
        if message.get("t") == "hello":
            machine.control.settimeout(None)
            return FramedGuest(machine.control)
    except (OSError, SandboxClosed):
        pass
    said = machine.said()
    try:
        with open(os.path.join(work, "console"), encoding="utf-8", errors="replace") as file:
            said += file.read()[-2000:]
    except OSError:
        pass
    raise WallError("the virtual machine did not start: {said}", said=said.strip())


def _save(monitor: Monitor, state: int) -> None:
    # Not stopped first: a clone continues in the saved run state, and QEMU itself stops the machine at the end.
    monitor.give("state", state)
    monitor.ask("migrate", uri="fd:state")
    while (status := monitor.ask("query-migrate").get("status")) != "completed":
        if status in ("failed", "cancelled"):
            raise WallError("QEMU could not save the machine")
        time.sleep(0.01)  # QEMU sends no event when it is done, unless all events are enabled
