"""Firecracker in its room, with two file servers beside it. The owner connects them and then hands the streams over.

The owner opens every connection before a tenant's code runs, and none later: by then the room's sockets could have been
replaced.
"""

from __future__ import annotations

import os
import socket

from sandbox.engines.firecracker import vsock
from sandbox.engines.firecracker.api import Api
from sandbox.engines.machine.processes import RoomProcesses
from sandbox.engines.machine.room_paths import DIRECTORY, RUN
from sandbox.engines.machine.setup import PROVIDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.engines.base import Running

PROGRAM = f"{DIRECTORY}/firecracker"
API, VSOCK = "api.sock", "v.sock"
TAP = "tap0"
CONFINED = True  # to fewer rights than a tenant's; our tests' stand-in, which runs QEMU, cannot be confined
PATIENCE = 20.0  # seconds until Firecracker listens


class FirecrackerMachine(RoomProcesses):
    """A Firecracker that was started but not configured, in the room whose guest is `pid`."""

    def __init__(self, room: Running, pid: int, *, template: bool = False) -> None:
        """`template`: it may write files. Raises WallError."""
        super().__init__(room)
        self._run = os.open(f"/proc/{pid}/root{RUN}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._streams: list[socket.socket] = []
        try:
            words = [PROGRAM, "--api-sock", f"{RUN}/{API}", "--id", "sandbox"]
            self.launch(words if CONFINED and not template else ["--template", *words], ())
            self.api = Api(vsock.reach(self._run, API, PATIENCE))
        except BaseException:
            self.close()
            raise

    def wait_for_guest(self, patience: float) -> None:
        """Waits until our guest in the machine has booted. Raises WallError."""
        vsock.wait_for(self._run, VSOCK, vsock.PORTS["control"], patience)

    def connect(self, shared: Sequence[str]) -> socket.socket:
        """Starts the file servers and joins them to the machine. Returns the control stream. Raises WallError."""
        streams = {name: vsock.connect(self._run, VSOCK, port) for name, port in vsock.PORTS.items()}
        self._streams = list(streams.values())
        provided = [word for word in shared if word.startswith(PROVIDED)]
        # No disks: everything goes over the streams.
        self.start(["--share-system", os.devnull, *provided], streams["system"])
        self.start(["--share", *shared], streams["files"])
        for stream in self._streams:
            stream.sendall(vsock.OPEN)
        for name in ("system", "files"):
            streams[name].close()
        self._streams = [streams["control"]]
        return streams["control"]

    def close(self) -> None:
        super().close()
        if "api" in self.__dict__:
            self.api.close()
        for stream in self._streams:
            stream.close()
        self._streams = []
        if self._run >= 0:
            os.close(self._run)
            self._run = -1
