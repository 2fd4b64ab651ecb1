"""Templates: a machine that has booted and listens, saved once by Firecracker and loaded from then on.

They are stored as QEMU's are (machine/template_store.py).
"""

from __future__ import annotations

import os
import shutil

from sandbox.engines.firecracker.machine import TAP, VSOCK, FirecrackerMachine
from sandbox.engines.firecracker.vmlinux import vmlinux
from sandbox.engines.machine.initramfs import initramfs
from sandbox.engines.machine.kernel import VSOCK_MODULES, find_kernel
from sandbox.engines.machine.room_paths import DIRECTORY, RUN
from sandbox.engines.machine.template_store import keep, named
from sandbox.errors import WallError
from sandbox.guest.binary import guest_binary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.engines.local import LocalRunning
    from sandbox.engines.machine.kernel import InstalledKernel

FILES = ("memory", "state", "kernel", "initramfs", "guest", "firecracker")
BOOT_PATIENCE = 120.0
KERNEL_WORDS = "console=ttyS0 quiet panic=-1 reboot=k random.trust_cpu=on sandbox_vsock=1"


class MachineSnapshot:
    """A saved machine of a certain size."""

    def __init__(self, directory: str, memory_mb: int, cpus: int) -> None:
        self.directory = directory
        self.memory_mb = memory_mb
        self.cpus = cpus


def snapshot(program: str, memory_mb: int, cpus: int, room: Callable[[str], LocalRunning]) -> MachineSnapshot:
    """The template of that size, made now if it does not exist. `room` builds a bare room that shows a directory.

    Raises EngineUnavailable when a kernel is missing, WallError when the machine does not boot.
    """
    kernel, guest = find_kernel(), guest_binary()
    told = ["firecracker", memory_mb, cpus, KERNEL_WORDS, *VSOCK_MODULES]
    directory = named(told, (program, kernel.image, kernel.list, guest), processor=True)
    made = MachineSnapshot(directory, memory_mb, cpus)
    keep(directory, FILES, lambda work: _make(work, made, program, kernel, guest, room))
    return made


def _make(
    work: str,
    made: MachineSnapshot,
    program: str,
    kernel: InstalledKernel,
    guest: str,
    room: Callable[[str], LocalRunning],
) -> None:
    shutil.copy(program, os.path.join(work, "firecracker"))
    shutil.copy(guest, os.path.join(work, "guest"))
    with open(kernel.image, "rb") as image, open(os.path.join(work, "kernel"), "wb") as file:
        file.write(vmlinux(image.read()))
    with open(os.path.join(work, "initramfs"), "wb") as file:
        file.write(initramfs(kernel, guest, VSOCK_MODULES))
    _boot_and_save(work, made, room)


def _boot_and_save(work: str, made: MachineSnapshot, room: Callable[[str], LocalRunning]) -> None:
    running = room(work)
    try:
        assert running.pid is not None
        machine = FirecrackerMachine(running, running.pid, template=True)
        try:
            machine.api.configure(
                cpus=made.cpus,
                memory_mb=made.memory_mb,
                kernel=f"{DIRECTORY}/kernel",
                initrd=f"{DIRECTORY}/initramfs",
                words=KERNEL_WORDS,
                tap=TAP,
                vsock=f"{RUN}/{VSOCK}",
            )
            machine.api.start()
            machine.wait_for_guest(BOOT_PATIENCE)
            machine.api.pause()
            machine.api.save(f"{DIRECTORY}/state", f"{DIRECTORY}/memory")
        except WallError as problem:
            raise WallError(
                "the virtual machine did not start: {said}", said=f"{problem}; {machine.said()}"
            ) from problem
        finally:
            machine.close()
    finally:
        running.close()
