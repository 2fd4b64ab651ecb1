"""Non-blocking frames on a socket, and the event loop of a thread that serves many such sockets."""

from __future__ import annotations

import os
import select
import socket
from array import array
from collections import deque
from struct import pack, unpack_from

from sandbox.errors import GuestError, SandboxClosed
from sandbox.guest import cbor, frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_PIECE = 2**18


class Loop:
    """Calls a function when its descriptor is ready."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._waiting: dict[int, tuple[int, Callable[[], None]]] = {}

    def watch(self, fd: int, events: int, ready: Callable[[], None]) -> None:
        """Calls `ready` when one of `events` happens, and always when the other side is gone."""
        if self._waiting.get(fd) != (events, ready):
            self._waiting[fd] = (events, ready)
            self._poll.register(fd, events)

    def forget(self, fd: int) -> None:
        """Stops watching a descriptor."""
        if self._waiting.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def turn(self, patience: float | None = None) -> None:
        """Waits, at most `patience` seconds, and calls the functions of the descriptors that are ready."""
        events = self._poll.poll(None if patience is None else patience * 1000)
        ready = [(fd, self._waiting.get(fd)) for fd, _ in events]
        for fd, waiting in ready:
            # An earlier call may have closed the descriptor, and another may have its number by now.
            if waiting is not None and self._waiting.get(fd) == waiting:
                waiting[1]()


class Channel:
    """One socket with frames in both directions. Outgoing frames are queued here until the other side takes them."""

    def __init__(self, sock: socket.socket, *, fds: bool = False) -> None:
        """`fds`: descriptors may come with the frames."""
        sock.setblocking(False)
        self._sock = sock
        self._with_fds = fds
        self._coming = bytearray()
        self._fds: deque[int] = deque()
        self._going: deque[tuple[memoryview, list[int]]] = deque()
        self.queued = 0  # bytes going out

    def fileno(self) -> int:
        return self._sock.fileno()

    def receive(self) -> list[tuple[dict[str, Any], list[int]]]:
        """The frames that have arrived, with their descriptors; an empty list when there is nothing for now.

        Raises SandboxClosed at the end, GuestError for anything the protocol does not allow. It buffers at most one
        frame and one piece, whatever size a frame claims.
        """
        try:
            piece = self._receive_with_fds() if self._with_fds else self._sock.recv(_PIECE)
        except BlockingIOError:
            return []
        except OSError as problem:
            raise SandboxClosed("the sandbox has ended") from problem
        if not piece:
            raise SandboxClosed("the sandbox has ended")
        self._coming += piece
        found = []
        while (message := self._whole()) is not None:
            count = message.pop("fds", 0) if self._with_fds else 0
            found.append((message, [self._fds.popleft() for _ in range(count)]))
        return found

    def _receive_with_fds(self) -> bytes:
        piece, fds = frames.receive_some(self._sock, _PIECE)
        self._fds.extend(fds)
        return piece

    def _whole(self) -> dict[str, Any] | None:
        if len(self._coming) < 4:
            return None
        (length,) = unpack_from("<I", self._coming)
        frames.check_length(length)
        if len(self._coming) < 4 + length:
            return None
        body = bytes(memoryview(self._coming)[4 : 4 + length])
        del self._coming[: 4 + length]
        return frames.parse(body)

    def send(self, message: dict[str, object], fds: Sequence[int] = ()) -> None:
        """Sends a frame, now or later. The channel owns the descriptors from now on. Never raises: `receive` reports
        when the other side has gone."""
        if fds:
            message["fds"] = len(fds)
        body = cbor.encode(message)
        self._going.append((memoryview(pack("<I", len(body)) + body), list(fds)))
        self.queued += 4 + len(body)
        self.flush()

    def flush(self) -> None:
        """Sends as much as the other side takes now."""
        while self._going:
            frame, fds = self._going[0]
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
            try:
                sent = self._sock.sendmsg([frame], ancillary)
            except BlockingIOError:
                return
            except OSError:
                self._drop()
                return
            for fd in fds:
                os.close(fd)
            self.queued -= sent
            if sent == len(frame):
                self._going.popleft()
            else:
                self._going[0] = (frame[sent:], [])

    def _drop(self) -> None:
        for _, fds in self._going:
            frames.close_all(fds)
        self._going.clear()
        self.queued = 0

    def close(self) -> None:
        """Releases everything; frames that have not been sent are lost."""
        self._drop()
        frames.close_all(self._fds)
        self._fds.clear()
        self._sock.close()


def broken(problem: GuestError) -> dict[str, object]:
    """The message sent locally, to those who wait for the guest, when it broke the protocol."""
    return {"t": frames.BROKEN, "reason": str(problem)}
