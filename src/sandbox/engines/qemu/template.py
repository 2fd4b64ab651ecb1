"""Templates: a machine that has booted and waits for its first word, saved once and cloned from then on.

A template is a directory under the cache, named by a hash of everything that went into it. It is private to its
owner, made complete in another directory and renamed, and checked before each use: who owns it, that nobody else can
write it, and that its memory file is the very one that was made (a clone maps it; nothing ever writes it again).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import tempfile

from sandbox.config.home import home
from sandbox.engines.qemu.command import command, find_qemu
from sandbox.engines.qemu.initramfs import initramfs
from sandbox.engines.qemu.kernel import find_kernel
from sandbox.engines.qemu.monitor import Monitor
from sandbox.engines.qemu.room import start_qemu
from sandbox.errors import SandboxClosed, WallError
from sandbox.guest import frames
from sandbox.guest.binary import guest_binary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.engines.base import Running
    from sandbox.engines.qemu.kernel import Kernel

FILES = ("ram", "state", "kernel", "initramfs", "guest")
BOOT_PATIENCE = 120.0  # seconds until an emulated machine on a busy host has booted


class Template:
    """A saved machine of a certain size."""

    def __init__(self, directory: str, memory_mb: int, cpus: int) -> None:
        self.directory = directory
        self.memory_mb = memory_mb
        self.cpus = cpus

    @property
    def memory(self) -> str:
        """The file with the machine's memory."""
        return os.path.join(self.directory, "ram")

    def open_state(self) -> int:
        """A descriptor of the saved state of processor and devices."""
        return os.open(os.path.join(self.directory, "state"), os.O_RDONLY | os.O_CLOEXEC)


def cache_directory() -> str:
    """Where templates and images are kept. `SANDBOX_CACHE_DIR` moves it."""
    return os.environ.get("SANDBOX_CACHE_DIR") or os.path.join(home(), "cache")


def template(memory_mb: int, cpus: int, room: Callable[[str], Running]) -> Template:
    """The template of that size, made now if it is not there. `room` builds a bare room that shows a directory.

    Raises EngineUnavailable when QEMU or a kernel is missing, WallError when the machine does not boot.
    """
    kernel, guest = find_kernel(), guest_binary()
    place = os.path.join(cache_directory(), "templates")
    made = Template(os.path.join(place, _name(kernel, guest, memory_mb, cpus)), memory_mb, cpus)
    if _is_good(made):
        return made
    os.makedirs(place, mode=0o700, exist_ok=True)
    with _locked(place):
        if not _is_good(made):  # another maker may have been quicker
            shutil.rmtree(made.directory, ignore_errors=True)
            _make(made, kernel, guest, place, room)
    return made


def _name(kernel: Kernel, guest: str, memory_mb: int, cpus: int) -> str:
    """Changes with everything that a saved machine depends on."""
    told = [command(memory_mb, cpus, template=True)]
    for path in (find_qemu(), kernel.image, guest, *kernel.files()):
        status = os.stat(path)
        told.append([path, str(status.st_size), str(status.st_mtime_ns), str(status.st_ino)])
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        told.append([line for line in file if line.startswith(("model name", "flags"))][:2])
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


class _locked:
    """One maker at a time; the lock goes with the process."""

    def __init__(self, place: str) -> None:
        self._file = os.path.join(place, "lock")

    def __enter__(self) -> None:
        import fcntl

        self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _is_good(made: Template) -> bool:
    try:
        with open(os.path.join(made.directory, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        directory = os.stat(made.directory)
        return (
            directory.st_uid == os.geteuid()
            and not directory.st_mode & 0o077
            and manifest == {name: _identity(made.directory, name) for name in FILES}
        )
    except (OSError, ValueError):
        return False


def _identity(directory: str, name: str) -> list[int]:
    """Of a file that nobody has touched: the time of change is the kernel's, and nobody can set it back."""
    status = os.stat(os.path.join(directory, name))
    return [status.st_ino, status.st_size, status.st_ctime_ns]


def _make(made: Template, kernel: Kernel, guest: str, place: str, room: Callable[[str], Running]) -> None:
    work = tempfile.mkdtemp(prefix=".new-", dir=place)
    try:
        shutil.copyfile(kernel.image, os.path.join(work, "kernel"))
        shutil.copy(guest, os.path.join(work, "guest"))
        with open(os.path.join(work, "initramfs"), "wb") as file:
            file.write(initramfs(kernel, guest))
        _boot_and_save(work, made, room)
        for name in ("console", "ready"):
            if os.path.exists(os.path.join(work, name)):
                os.unlink(os.path.join(work, name))
        manifest = {name: _identity(work, name) for name in FILES}
        with open(os.path.join(work, "manifest.json"), "w", encoding="utf-8") as manifest_file:
            json.dump(manifest, manifest_file)
        os.rename(work, made.directory)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _boot_and_save(work: str, made: Template, room: Callable[[str], Running]) -> None:
    running = room(work)
    ends = [socket.socketpair() for _ in range(3)]
    state = os.open(os.path.join(work, "state"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    control, _files, monitor_end = (ours for ours, _ in ends)
    try:
        words = command(made.memory_mb, made.cpus, template=True)
        process, errors = start_qemu(running, ["--template", *words], [end.fileno() for _, end in ends])
        try:
            for _, theirs in ends:
                theirs.close()
            _wait_for_hello(control, errors, work)
            _save(Monitor(monitor_end), state)
        finally:
            process.close()
            os.close(errors)
    finally:
        os.close(state)
        for ours, theirs in ends:
            ours.close()
            theirs.close()
        running.close()


def _wait_for_hello(control: socket.socket, errors: int, work: str) -> None:
    control.settimeout(BOOT_PATIENCE)
    try:
        message, _ = frames.receive(control)
        if message.get("t") == "hello":
            return
    except (OSError, SandboxClosed):
        pass
    os.set_blocking(errors, False)
    try:
        said = os.read(errors, 4096).decode(errors="replace")
    except OSError:
        said = ""
    try:
        with open(os.path.join(work, "console"), encoding="utf-8", errors="replace") as file:
            said += file.read()[-2000:]
    except OSError:
        pass
    raise WallError("the virtual machine did not start: {said}", said=said.strip() or "no message")


def _save(monitor: Monitor, state: int) -> None:
    import time

    # Not stopped first: a clone goes on in the state that was saved, and QEMU stops the machine itself at the end.
    monitor.give("state", state)
    monitor.ask("migrate", uri="fd:state")
    while (status := monitor.ask("query-migrate").get("status")) != "completed":
        if status in ("failed", "cancelled"):
            raise WallError("QEMU could not save the machine")
        time.sleep(0.01)  # there is no event for its end unless one asks for them all
    monitor.close()
