"""QEMU and two file servers as tenants of a room, joined by sockets."""

from __future__ import annotations

import socket

from sandbox.engines.machine.processes import RoomProcesses
from sandbox.engines.machine.room_paths import DIRECTORY
from sandbox.engines.machine.setup import PROVIDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox.engines.base import Running

SAVED = "--saved"
NODES = "nodes"  # in a template: the table of system files that its kernel knows


class Machine(RoomProcesses):
    """The processes around QEMU's machine, and the owner's two sockets to it: control and monitor.

    `words` is QEMU's command line. `shared` is what the room's file server is told of its directories.
    """

    def __init__(
        self,
        room: Running,
        words: Sequence[str],
        shared: Sequence[str],
        *,
        saved: bool = False,
        set_up: bool = False,
        nodes: str = f"{DIRECTORY}/{NODES}",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`saved`: both servers wait for the state of another machine's servers (saved.py). `set_up`: only the room's
        server does, and the system's has the template's table. `nodes`: the file with the table of system files that
        the machine knows. `environment`: QEMU's variables."""
        super().__init__(room)
        self.servers: list[socket.socket] = []  # for asking each server for its state: the system's, the room's
        pairs = [socket.socketpair() for _ in range(6)]  # in the order of their descriptors in QEMU
        (self.control, system, system_bytes, files, files_bytes, self.monitor) = (ours for ours, _ in pairs)
        try:
            provided = [word for word in shared if word.startswith(PROVIDED)]
            self._serve(["--share-system", SAVED if saved else nodes, *provided], system, system_bytes)
            self._serve(["--share", *((SAVED,) if saved or set_up else ()), *shared], files, files_bytes)
            self.launch(words, [theirs.fileno() for _, theirs in pairs], environment)
        except BaseException:
            self.close()
            raise
        finally:
            for ours, theirs in pairs:
                theirs.close()
                if ours not in (self.control, self.monitor):
                    ours.close()

    def _serve(self, words: Sequence[str], stream: socket.socket, content: socket.socket) -> None:
        ours, theirs = socket.socketpair()
        self.servers.append(ours)
        with theirs:
            self.start(words, stream, content, theirs, vital=True)  # without it, whoever asks for a file waits for ever

    def end(self) -> None:
        """Ends QEMU, and waits until the servers have noticed and finished."""
        *servers, (qemu, _) = self._helpers
        qemu.close()
        for server, _ in servers:
            server.wait()

    def close(self) -> None:
        super().close()
        for one in (self.control, self.monitor, *self.servers):
            one.close()
