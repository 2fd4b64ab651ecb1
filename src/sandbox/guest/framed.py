"""A guest that no descriptor can be handed to: at the other end of TCP, or of a virtual machine's serial port."""

from __future__ import annotations

import select
import socket
from threading import Thread

from sandbox.errors import GuestError
from sandbox.guest import frames
from sandbox.guest.bridge import Bridge
from sandbox.guest.guest import Guest

_MOST = 20.0  # seconds for an answer of the machine's guest, which may have a slow file operation to wait for
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

    # -- only for the guest of a virtual machine

    def hold(self) -> None:
        """Has the guest finish what it says and do nothing more, so that the machine can be saved. Raises GuestError.

        What is asked of it meanwhile waits until `go`.
        """
        self._say({"t": "hold"}, ())
        try:
            self._expect("held")
        except GuestError:
            self._say({"t": "unhold"}, ())
            raise

    def go(self) -> None:
        """After `hold`."""
        self._say({"t": "go"}, ())

    def set_clock(self, time_ns: int) -> None:
        """Sets the machine's time. Raises GuestError."""
        self._say({"t": "clock", "time_ns": time_ns}, ())
        self._expect("set")

    def take_up(self, identity: dict[str, object]) -> None:
        """In place of `set_up`, for the clone of a machine that was on `hold`: says who it is now. Raises WallError."""
        self._say({"t": "cloned", **identity}, ())
        self._get_ready()

    def _expect(self, kind: str) -> None:
        ready, _, _ = select.select([self._channel], [], [], _MOST)
        if not ready:
            raise GuestError("the virtual machine does not answer")
        message, fds = frames.receive(self._channel)
        frames.close_all(fds)
        if message["t"] != kind:
            raise GuestError("the virtual machine cannot be held: {errno}", errno=message.get("errno", message["t"]))

    def close(self) -> None:
        """Ends the conversation, and with it the place. Returns when nothing of it is left here."""
        super().close()
        self._thread.join(_PATIENCE)
