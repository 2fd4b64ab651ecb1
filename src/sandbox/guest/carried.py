"""Listening sockets of a guest that cannot hand them over: the guest accepts, and the connections come in frames.

The bridge has a `Carrier` for each. At the other end of it the gate has an object with the calls of a listening socket
that it uses, so that it works as if the socket itself had crossed.
"""

from __future__ import annotations

import os
import select
import socket
from collections import deque

from sandbox.errors import GuestError, SandboxClosed
from sandbox.guest.channel import Channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Sequence
    from typing import Any

    from sandbox.guest.channel import Loop

FIRST_ID = 2**48  # guest/gate.c: how a connection that a tenant made is numbered
MOST_SOCKETS = 250
MOST_CONNECTIONS = 1024  # of one sandbox at a time, as many as the gate serves: each takes three descriptors
MOST_JOBS = 2**16  # that a guest may leave without an end
_KINDS = ("tcp", "lo", "udp")
_WAITING = 2**16  # bytes about connections that the gate has not accepted yet
_DATAGRAMS = 64  # that wait; any more are lost
_PEER = 64  # bytes, at most


class Carrier:
    """The bridge's end of one socket that listens inside."""

    def __init__(self, loop: Loop, name: str, answer: Callable[[dict[str, object]], None]) -> None:
        """`answer` is called with what is to be sent to the guest."""
        ours, theirs = socket.socketpair()
        self.theirs = theirs  # for the gate
        self._loop = loop
        self._name = name
        self._answer = answer
        self._channel: Channel | None = Channel(ours)
        self._arm()

    def offer(self, message: dict[str, Any], fds: Sequence[int] = ()) -> bool:
        """Passes a connection or a datagram on to the gate. False, and the descriptors are the caller's, when it takes
        no more."""
        if self._channel is None or self._channel.queued > _WAITING:
            return False
        self._channel.send(message, fds)
        self._arm()
        return True

    def _arm(self) -> None:
        if self._channel is not None:
            waiting = select.POLLOUT if self._channel.queued else 0
            self._loop.watch(self._channel.fileno(), select.POLLIN | waiting, self._ready)

    def _ready(self) -> None:
        assert self._channel is not None
        self._channel.flush()
        try:
            for message, _ in self._channel.receive():
                self._answer(message if message["t"] == "cancel" else {**message, "socket": self._name})
        except (SandboxClosed, GuestError):  # the gate has ended
            self.close()
        self._arm()

    def close(self) -> None:
        """Idempotent."""
        if self._channel is not None:
            self._loop.forget(self._channel.fileno())
            self._channel.close()
            self._channel = None


def socket_names(said: object) -> list[str]:
    """The names of the sockets that listen inside. Raises GuestError."""
    names: list[Any] = said if isinstance(said, list) else [None]
    if len(names) > MOST_SOCKETS or len(set(map(str, names))) < len(names):
        raise GuestError("the guest offers sockets that cannot cross")
    for name in names:
        if not isinstance(name, str) or not name.startswith(_KINDS):
            raise GuestError("the guest offers sockets that cannot cross")
    return names


def accepted(message: dict[str, Any]) -> dict[str, Any]:
    """What the guest says about a connection, checked. Raises GuestError."""
    told = {key: message.get(key) for key in ("address", "port", "from", "from_port")}
    for address, port in (("address", "port"), ("from", "from_port")):
        text, number = told[address], told[port]
        try:
            socket.inet_pton(socket.AF_INET6 if ":" in str(text) else socket.AF_INET, str(text))
        except (OSError, ValueError):
            raise GuestError("the guest accepted a connection from nowhere") from None
        if type(number) is not int or not 0 <= number <= 65535:
            raise GuestError("the guest accepted a connection from nowhere")
    return {"t": "accepted", **told}


def datagram(message: dict[str, Any]) -> dict[str, Any]:
    """A datagram from inside, checked. Raises GuestError."""
    data, peer = message.get("data"), message.get("peer")
    if not isinstance(data, bytes) or not isinstance(peer, bytes) or len(peer) > _PEER:
        raise GuestError("the guest sent something else than a datagram")
    return {"t": "datagram", "peer": peer, "data": data}


class CarriedConnection(socket.socket):
    """A tenant's connection: a local socket, with the addresses of the one inside."""

    def __init__(self, descriptor: int, told: dict[str, Any], reset: Callable[[], None]) -> None:
        super().__init__(fileno=descriptor)
        self._reset = reset
        self._here = (told["address"], told["port"])
        self._there = (told["from"], told["from_port"])

    def getsockname(self) -> tuple[str, int]:
        return self._here

    def getpeername(self) -> tuple[str, int]:
        return self._there

    def setsockopt(self, level: int, *more: Any) -> None:
        """The guest has set what concerns TCP. Who sets SO_LINGER is about to reset the connection, which only the
        guest can."""
        if (level, more[0]) == (socket.SOL_SOCKET, socket.SO_LINGER):
            self._reset()
        elif level != socket.IPPROTO_TCP:
            super().setsockopt(level, *more)


class _Carried:
    """The gate's end of one socket that listens inside."""

    def __init__(self, sock: _socket.socket) -> None:
        self._channel = Channel(socket.socket(fileno=sock.detach()), fds=True)
        self._arrived: deque[tuple[dict[str, Any], list[int]]] = deque()

    def fileno(self) -> int:
        return self._channel.fileno()

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def _next(self) -> tuple[dict[str, Any], list[int]]:
        if not self._arrived:
            self._arrived.extend(self._channel.receive())
        if not self._arrived:
            raise BlockingIOError
        return self._arrived.popleft()

    def close(self) -> None:
        """Closes it, and every connection that was not accepted."""
        for _, fds in self._arrived:
            for fd in fds:
                os.close(fd)
        self._arrived.clear()
        self._channel.close()


class CarriedListener(_Carried):
    """As a listening socket, for the gate."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises BlockingIOError when there is no connection, SandboxClosed when there will be no more."""
        message, fds = self._next()
        number = message["id"]
        connection = CarriedConnection(fds[0], message, lambda: self._channel.send({"t": "cancel", "id": number}))
        return connection, connection.getpeername()


class CarriedDatagrams(_Carried):
    """As a datagram socket, for the gate."""

    def recvmsg(self, size: int, ancillary: int = 0) -> tuple[bytes, list[tuple[int, int, bytes]], int, Any]:
        """Raises BlockingIOError when there is no datagram, SandboxClosed when there will be no more."""
        message, _ = self._next()
        while len(self._arrived) > _DATAGRAMS:
            self._arrived.pop()
        return message["data"][:size], [], 0, message["peer"]

    def sendmsg(self, pieces: Sequence[bytes], ancillary: object, flags: int, peer: Any) -> int:
        data = b"".join(pieces)
        if self._channel.queued <= _WAITING:
            self._channel.send({"t": "datagram", "peer": peer, "data": data})
        return len(data)
