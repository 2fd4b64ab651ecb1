"""Templates: a machine that has booted and listens, saved by Firecracker once and loaded from then on.

As those of QEMU (qemu/template.py): a directory under the cache, named by all that went in, private to its owner, made
whole and renamed, and used only while its files are the very ones that were made.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile

from sandbox.config.home import cache_directory
from sandbox.engines.firecracker.machine import RUN, TAP, VSOCK, FirecrackerMachine
from sandbox.engines.firecracker.vmlinux import vmlinux
from sandbox.engines.qemu.command import DIRECTORY
from sandbox.engines.qemu.initramfs import initramfs
from sandbox.engines.qemu.kernel import find_kernel
from sandbox.errors import WallError
from sandbox.guest.binary import guest_binary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.engines.local import LocalRunning
    from sandbox.engines.qemu.kernel import Kernel

FILES = ("memory", "state", "kernel", "initramfs", "guest", "firecracker")
BOOT_PATIENCE = 120.0
VSOCK_MODULES = ("virtio_mmio", "virtio_net", "vmw_vsock_virtio_transport", "virtio_rng", "fuse", "overlay")
KERNEL_WORDS = "console=ttyS0 quiet panic=-1 reboot=k random.trust_cpu=on sandbox_vsock=1"


class Snapshot:
    """A saved machine of a certain size."""

    def __init__(self, directory: str, memory_mb: int, cpus: int) -> None:
        self.directory = directory
        self.memory_mb = memory_mb
        self.cpus = cpus


def snapshot(program: str, memory_mb: int, cpus: int, room: Callable[[str], LocalRunning]) -> Snapshot:
    """The template of that size, made now if it is not there. `room` builds a bare room that shows a directory.

    Raises EngineUnavailable when a kernel is missing, WallError when the machine does not boot.
    """
    kernel, guest = find_kernel(), guest_binary()
    place = os.path.join(cache_directory(), "templates")
    made = Snapshot(os.path.join(place, _name(program, kernel, guest, memory_mb, cpus)), memory_mb, cpus)
    if _is_good(made.directory):
        return made
    os.makedirs(place, mode=0o700, exist_ok=True)
    lock = os.open(os.path.join(place, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_good(made.directory):  # another maker may have been quicker
            shutil.rmtree(made.directory, ignore_errors=True)
            _make(made, program, kernel, guest, room)
    finally:
        os.close(lock)
    return made


def _name(program: str, kernel: Kernel, guest: str, memory_mb: int, cpus: int) -> str:
    told: list[object] = ["firecracker", memory_mb, cpus, KERNEL_WORDS, *VSOCK_MODULES]
    for path in (program, kernel.image, kernel.list, guest):
        status = os.stat(path)
        told.append([path, status.st_size, status.st_mtime_ns, status.st_ino])
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        told += [line for line in file if line.startswith(("model name", "flags", "microcode"))][:3]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


def _identities(directory: str) -> dict[str, list[int]]:
    """Of files that nobody has touched: the time of change is the kernel's, and nobody can set it back."""
    found = {name: os.stat(os.path.join(directory, name)) for name in FILES}
    return {name: [one.st_ino, one.st_size, one.st_ctime_ns] for name, one in found.items()}


def _is_good(directory: str) -> bool:
    try:
        with open(os.path.join(directory, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        status = os.stat(directory)
        private = status.st_uid == os.geteuid() and not status.st_mode & 0o077
        return private and manifest == _identities(directory)
    except (OSError, ValueError):
        return False


def _make(made: Snapshot, program: str, kernel: Kernel, guest: str, room: Callable[[str], LocalRunning]) -> None:
    work = tempfile.mkdtemp(prefix=".new-", dir=os.path.dirname(made.directory))
    try:
        shutil.copy(program, os.path.join(work, "firecracker"))
        shutil.copy(guest, os.path.join(work, "guest"))
        with open(kernel.image, "rb") as image, open(os.path.join(work, "kernel"), "wb") as file:
            file.write(vmlinux(image.read()))
        with open(os.path.join(work, "initramfs"), "wb") as file:
            file.write(initramfs(kernel, guest, VSOCK_MODULES))
        _boot_and_save(work, made, room)
        with open(os.path.join(work, "manifest.json"), "w", encoding="utf-8") as manifest:
            json.dump(_identities(work), manifest)
        os.rename(work, made.directory)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _boot_and_save(work: str, made: Snapshot, room: Callable[[str], LocalRunning]) -> None:
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
