"""A guest that no descriptor can be handed to: at the other end of TCP, or of a virtual machine's serial port."""

from __future__ import annotations

import socket
from threading import Thread

from sandbox.guest.bridge import Bridge
from sandbox.guest.guest import Guest

_PATIENCE = 5.0  # seconds; the thread waits for nobody, so it ends at once


class FramedGuest(Guest):
    """As `Guest`, over any stream socket. Costs one thread, which carries the bytes of every command.

    A `Process` has local descriptors as everywhere; one that was handed over as an input is read ahead, up to 256 KiB.
    Requests read and write a file's content (`open` fails with EXDEV). There are no listening sockets and no FUSE
    devices.
    """

    passes_descriptors = False

    def __init__(self, stream: socket.socket) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours)
        self._thread = Thread(target=Bridge(stream, theirs).run, name="sandbox-frames", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the conversation, and with it the place. Returns when nothing of it is left here."""
        super().close()
        self._thread.join(_PATIENCE)
