"""Saving a running machine, and what a clone of it starts from.

A clone maps the memory file privately, so a saved machine is such a file (the one that the machine was started from,
with the pages that it has changed since), the state of processor and devices (64 KB), and the file servers' state.
QEMU saves private memory only through its migration stream, which every clone would have to read again. So we read the
changed pages from QEMU's process, as its owner may; `xen-save-devices-state` writes the state without the memory, and
every QEMU has it, with or without Xen.
"""

from __future__ import annotations

import json
import os
import struct

from sandbox.engines.machine.running import set_time
from sandbox.engines.qemu.servers import hear_server, known_files, tell_server
from sandbox.engines.qemu.template import Template
from sandbox.errors import GuestError, SandboxError, WallError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from sandbox.engines.qemu.monitor import Monitor
    from sandbox.guest.framed import FramedGuest

MEMORY, STATE, FILES, ABOUT = "memory", "state", "files", "machine.json"
STATE_MOST = 64 << 20
PATIENCE = 60.0


class SavedMachine(Template):
    """A machine saved in a checkpoint's directory, to be cloned. `base`: the template that it was started from."""

    def __init__(self, directory: str, base: Template) -> None:
        """Raises SandboxError when it was made from another template than `base`."""
        super().__init__(base.directory, base.memory_mb, base.cpus, base.accelerated)
        self._saved = directory
        with open(os.path.join(directory, ABOUT), encoding="utf-8") as file:
            about = json.load(file)
        made_with, self.kills = about.get("template"), int(about.get("kills", 0))
        if made_with != os.path.basename(base.directory):
            raise SandboxError(
                "the checkpoint was made with another QEMU, kernel, processor or version of sandbox than those here now"
            )

    @property
    def memory(self) -> str:
        return os.path.join(self._saved, MEMORY)

    def open_state(self) -> int:
        return os.open(os.path.join(self._saved, STATE), os.O_RDONLY | os.O_CLOEXEC)

    def tell_servers(self, servers: Sequence[socket.socket]) -> None:
        """Gives new file servers the state of the old ones. Raises SandboxError when the files have been replaced."""
        for number, control in enumerate(servers):
            with open(os.path.join(self._saved, f"{FILES}-{number}"), "rb") as file:
                tell_server(control, file.read())
        for control in servers:
            hear_server(control)


class LivingMachine:
    """A running machine, to be paused or saved."""

    def __init__(
        self, monitor: Monitor, guest: FramedGuest, servers: Sequence[socket.socket], room: int, started_from: Template
    ) -> None:
        """`servers` lead to the file servers; `room` is the pid of the room's guest."""
        self._monitor = monitor
        self._guest = guest
        self._servers = servers
        self._room = room
        self._from = started_from
        self._base = os.open(started_from.memory, os.O_RDONLY | os.O_CLOEXEC)  # works even after the file is unlinked
        self.memory_mb = started_from.memory_mb
        self.kills = started_from.kills  # of processes, by its kernel, for lack of memory
        self._held = False  # the guest has finished what it was sending

    def pause(self) -> None:
        """Stops the processors. A machine whose guest does not answer is stopped too, but cannot be saved."""
        try:
            self._guest.hold()
            self._held = True
        except GuestError:
            pass
        self._monitor.ask("stop")

    def resume(self) -> None:
        """Continues, with the clock set to the current time."""
        self._monitor.ask("cont")
        if self._held:
            self._held = False
            self._guest.go()
            set_time(self._guest)

    def save(self, directory: str) -> list[str]:
        """Saves a paused machine in `directory`. Returns the open files that no clone will have. Raises WallError."""
        from sandbox.engines.qemu.memory import copy_memory

        if not self._held:
            raise WallError("the virtual machine does not answer, so it cannot be saved")
        lost: list[str] = []
        try:
            for number, server in enumerate(self._servers):
                known = known_files(server)
                lost += _lost(known)
                with open(os.path.join(directory, f"{FILES}-{number}"), "wb") as files:
                    files.write(known)
            with open(os.path.join(directory, STATE), "wb") as state:
                state.write(self._state())
            copy_memory(self._room, self._base, os.path.join(directory, MEMORY), self._from.memory_mb << 20)
        finally:
            for server in self._servers:
                server.sendall(b"G")
        with open(os.path.join(directory, ABOUT), "w", encoding="utf-8") as about:
            json.dump({"template": os.path.basename(self._from.directory), "kills": self.kills}, about)
        return lost

    def _state(self) -> bytes:
        """The state of processor and devices. QEMU may not write files, but it may write to a pipe."""
        from threading import Thread

        ours, theirs = os.pipe()
        pieces: list[bytes] = []
        reader = Thread(target=_read_all, args=(ours, pieces), daemon=True)
        try:
            added = self._monitor.ask("add-fd", (theirs,))
            reader.start()
            self._monitor.ask("xen-save-devices-state", filename=f"/proc/self/fd/{added['fd']}", live=False)
            self._monitor.ask("remove-fd", **{"fdset-id": added["fdset-id"]})
        finally:
            if reader.ident is None:
                os.close(ours)
            try:
                os.write(theirs, END)  # QEMU may keep its end open
            except BrokenPipeError:
                pass  # the reader has had too much
            os.close(theirs)
        reader.join(PATIENCE)
        state = b"".join(pieces)
        if not state.endswith(END) or len(state) <= len(END):
            raise WallError("QEMU could not save the machine")
        return state[: -len(END)]

    def close(self) -> None:
        """The machine has ended."""
        self._monitor.close()
        os.close(self._base)


END = b"\0end of the machine's state\0"


def _read_all(pipe: int, pieces: list[bytes]) -> None:
    """Reads to the end, or too much; then closes the pipe, so that nobody waits for room in it."""
    size = 0
    try:
        while size <= STATE_MOST and (piece := os.read(pipe, 1 << 16)):
            size += len(piece)
            pieces.append(piece)
            if b"".join(pieces[-2:]).endswith(END):
                return
    finally:
        os.close(pipe)


def _lost(known: bytes) -> list[str]:
    """The names of open files that no longer have a path, which the file server puts at the end of its message."""
    size = struct.unpack_from("=4I", known)[3]
    names = known[len(known) - size :].split(b"\0")[:-1] if size else []
    return [os.fsdecode(name) for name in names]
