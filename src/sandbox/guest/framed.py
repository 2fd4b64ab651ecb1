"""A guest that descriptors cannot be passed to: at the other end of TCP, or of a virtual machine's serial port."""

from __future__ import annotations

import select
import socket
from threading import Thread

from sandbox.errors import GuestError
from sandbox.guest import frames
from sandbox.guest.bridge import Bridge
from sandbox.guest.guest import Guest

_MOST = 20.0  # seconds for an answer from the machine's guest, which may have to wait for a slow file operation
_READY = 300.0  # seconds until it has been set up, or taken up, where little else gets a turn
_PATIENCE = 5.0  # seconds; the thread never blocks, so it ends at once


class FramedGuest(Guest):
    """As `Guest`, over any stream socket. Costs one thread, which carries the bytes of every command.

    A `Process` has local descriptors, as elsewhere; a descriptor passed as input is read ahead, up to 256 KiB.
    `read` and `write` requests move a file's content (`open` fails with EXDEV). Listening sockets are carried
    (`carried.py`), and there are no FUSE devices.
    """

    passes_descriptors = False

    def __init__(self, stream: socket.socket) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours)
        self._thread = Thread(target=Bridge(stream, theirs).run, name="sandbox-frames", daemon=True)
        self._thread.start()

    # -- only for the guest of a virtual machine

    def hold(self) -> None:
        """Makes the guest finish what it sends and then pause, so that the machine can be saved. Raises GuestError.

        Requests made meanwhile wait until `go`.
        """
        self._say({"t": "hold"}, ())
        try:
            self._expect("held")
        except GuestError:
            self._say({"t": "unhold"}, ())
            raise

    def go(self) -> None:
        """Ends a `hold`."""
        self._say({"t": "go"}, ())

    def set_clock(self, time_ns: int) -> None:
        """Sets the machine's time. Raises GuestError."""
        self._say({"t": "clock", "time_ns": time_ns}, ())
        self._expect("set")

    def take_up(self, identity: dict[str, object]) -> None:
        """In place of `set_up`, for the clone of a held machine: gives it its new identity. Raises WallError."""
        self._say({"t": "cloned", **identity}, ())
        self._get_ready()

    def _get_ready(self) -> None:
        self._wait(_READY)
        super()._get_ready()

    def _wait(self, seconds: float) -> None:
        waiting = select.poll()  # `select` knows no descriptor above 1023
        waiting.register(self._channel.fileno(), select.POLLIN)
        if not waiting.poll(seconds * 1000):
            raise GuestError("the virtual machine does not answer")

    def _expect(self, kind: str) -> None:
        self._wait(_MOST)
        message, fds = frames.receive(self._channel)
        frames.close_all(fds)
        if message["t"] != kind:
            raise GuestError("the virtual machine cannot be held: {errno}", errno=message.get("errno", message["t"]))

    def close(self) -> None:
        """Ends the connection, and with it the sandbox. Returns when nothing of it is left in this process."""
        super().close()
        self._thread.join(_PATIENCE)
