"""The host's ends of framed streams: bytes between a local descriptor and frames, never more than there is credit for.

Nothing here blocks. O_NONBLOCK applies to everyone who shares a descriptor, so a descriptor that others may share is
reopened where possible. Where it is not, it is used only when it is ready, and in pieces that fit.
"""

from __future__ import annotations

import os
import select
import socket
import stat
from collections import deque

from sandbox.errors import GuestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.guest.channel import Loop

CREDIT = 2**18  # what a stream starts with, and never exceeds
PIECE = 2**16
SMALL = 4096  # bytes that a ready pipe takes without blocking
_ENOUGH = CREDIT // 4  # credit is returned in amounts of this size: fewer frames, and the sender never runs out


class Descriptor:
    """A local descriptor that is used without blocking."""

    def __init__(self, fd: int, flags: int) -> None:
        """Takes ownership of `fd`; `flags` is O_RDONLY or O_WRONLY."""
        self.fd = fd
        self.most = PIECE
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            self._open_anew(flags)

    def _open_anew(self, flags: int) -> None:
        try:
            fd = os.open(f"/proc/self/fd/{self.fd}", flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            self.most = SMALL
        else:
            os.close(self.fd)
            self.fd = fd

    def close(self) -> None:
        """Closes it. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def stop_reading(self) -> None:
        """Closes it, so that the writer learns that nobody reads."""
        self.close()

    def stop_writing(self) -> None:
        """Closes it, so that the reader sees the end."""
        self.close()


class SocketEnd(Descriptor):
    """A private copy of a socket, for one direction."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.fd = os.dup(sock.fileno())
        self.most = PIECE

    def stop_reading(self) -> None:
        if self.fd < 0:
            return
        with socket.socket(fileno=self.fd) as sock:
            self.fd = -1
            try:
                sock.shutdown(socket.SHUT_RD)
                # Closing it with unread data would reset it, and data sent the other way might be lost.
                while sock.recv(PIECE):
                    pass
            except OSError:
                pass  # it is empty, or the other side has closed

    def stop_writing(self) -> None:
        if self.fd < 0:
            return
        with socket.socket(fileno=self.fd) as sock:
            self.fd = -1
            try:
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the other side has closed


class Source:
    """Input: what comes from a local descriptor, as far as the guest has room."""

    def __init__(self, loop: Loop, descriptor: Descriptor, send: Callable[[bytes], None], end: bool = True) -> None:
        """`send` is called with each piece, and with b"" at the end if `end` is set."""
        self._loop = loop
        self._descriptor = descriptor
        self._send = send
        self._end = end
        self._credit = CREDIT

    def give(self, more: object) -> None:
        """Adds credit: the guest has room for more. Raises GuestError for more credit than was used."""
        if type(more) is not int or not 0 < more <= CREDIT - self._credit:
            raise GuestError("the guest gave credit for what it was not sent")
        self._credit += more

    def arm(self, full: bool) -> None:
        """Watches for the next piece, unless there is no credit or the queue to the guest is `full`."""
        if self._descriptor.fd >= 0 and self._credit and not full:
            self._loop.watch(self._descriptor.fd, select.POLLIN, self._ready)
        elif self._descriptor.fd >= 0:
            self._loop.forget(self._descriptor.fd)

    def _ready(self) -> None:
        try:
            data = os.read(self._descriptor.fd, min(self._credit, PIECE))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._credit -= len(data)
        if not data:
            self.close()
        if data or self._end:
            self._send(data)

    def close(self) -> None:
        """Reads no more; the writer learns that nobody reads. Idempotent."""
        self._loop.forget(self._descriptor.fd)
        self._descriptor.stop_reading()


class Sink:
    """Output: what the guest sent, until the local descriptor takes it."""

    def __init__(self, loop: Loop, descriptor: Descriptor, credit: Callable[[int], None]) -> None:
        """`credit` is called with how many more bytes the guest may send."""
        self._loop = loop
        self._descriptor = descriptor
        self._give = credit
        self._credit = CREDIT
        self._owed = 0
        self._pending: deque[memoryview] = deque()
        self._ended = False
        self.closed: Callable[[], None] = lambda: None  # called when nobody reads any more
        self.drained: Callable[[], None] = lambda: None  # called when everything received has been written

    @property
    def empty(self) -> bool:
        """Whether everything received has been written."""
        return not self._pending

    def put(self, data: bytes) -> None:
        """Takes a piece; an empty piece is the last. Raises GuestError for more than there was credit for."""
        if self._ended or len(data) > self._credit:
            raise GuestError("the guest sent output without credit, or after its end")
        self._credit -= len(data)
        if not data:
            self._ended = True
        elif self._descriptor.fd < 0:
            self._took(len(data))
        else:
            self._pending.append(memoryview(data))
        if self._pending and self._descriptor.most == SMALL:
            self._loop.watch(self._descriptor.fd, select.POLLOUT, self.flush)  # writing might block: poll first
        else:
            self.flush()

    def flush(self) -> None:
        """Writes as much as the descriptor takes now."""
        while self._pending and self._descriptor.fd >= 0:
            piece = self._pending[0][: self._descriptor.most]
            try:
                written = os.write(self._descriptor.fd, piece)
            except BlockingIOError:
                break
            except OSError:
                self.discard()
                self.closed()
                return
            self._wrote(written)
            if self._descriptor.most == SMALL:
                break
        if self._pending:
            self._loop.watch(self._descriptor.fd, select.POLLOUT, self.flush)
            return
        self._loop.forget(self._descriptor.fd)
        if self._ended:
            self.close()
        self.drained()

    def _wrote(self, count: int) -> None:
        rest = self._pending[0][count:]
        if rest:
            self._pending[0] = rest
        else:
            self._pending.popleft()
        self._took(count)

    def _took(self, count: int) -> None:
        self._owed += count
        if self._owed >= _ENOUGH:
            self._credit += self._owed
            self._give(self._owed)
            self._owed = 0

    def discard(self) -> None:
        """Nobody reads any more: throws output away from now on, so that the command can finish."""
        left = sum(map(len, self._pending))
        self._pending.clear()
        self.close()
        self._took(left)

    def close(self) -> None:
        """Writes no more; the reader sees the end. Idempotent."""
        self._loop.forget(self._descriptor.fd)
        self._descriptor.stop_writing()
