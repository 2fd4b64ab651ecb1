"""Carries tenants' connections to a gate that is elsewhere, and back: over one stream, in frames.

The frames are those of a guest that cannot hand over its sockets (`guest/protocol.md`, "Carried connections"): the
other end reads them with `guest/bridge.py`. Nothing is judged here, and nothing is dialled.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import OrderedDict

from sandbox.errors import GuestError, SandboxClosed
from sandbox.guest.carried import FIRST_ID
from sandbox.guest.channel import Channel, Loop
from sandbox.guest.streams import Sink, SocketEnd, Source
from sandbox.network.gate.dns_server import from_same

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sandbox.guest.carried import CarriedDatagrams, CarriedListener

MOST_CONNECTIONS = 1024  # further ones are reset
_AT_ONCE = 64
_DATAGRAM = 4096
_ASKED = 1024  # datagrams that may still be answered
_FULL = 2**20  # bytes queued for the other end: above this, nothing more is read from tenants
_PAUSE = 0.1  # seconds, when no descriptor is left


class Forwarder:
    """Serves the sockets of one sandbox until the other end is gone, or `stop` is readable."""

    def __init__(
        self,
        listening: Mapping[str, socket.socket | CarriedListener | CarriedDatagrams],
        stream: socket.socket,
        stop: socket.socket,
    ) -> None:
        self.loop = Loop()
        self.full = False
        self._listening = listening
        self._stream = Channel(stream)
        self._stop = stop
        self._next = FIRST_ID
        self._connections: dict[int, ForwardedConnection] = {}
        self._asked: OrderedDict[int, tuple[Any, Any]] = OrderedDict()  # how to answer a datagram, by its number

    def run(self) -> None:
        """Returns when it is over; every connection has then ended, and the sockets are closed."""
        self.loop.watch(self._stop.fileno(), select.POLLIN, self._stopped)
        try:
            while True:
                self._arm()
                self.loop.turn()
        except (SandboxClosed, GuestError):
            pass  # the other end is gone, or does not keep to the protocol: no connection goes anywhere any more
        finally:
            for one in list(self._connections.values()):
                one.reset()
            for sock in self._listening.values():
                sock.close()
            self._stream.close()

    def send(self, message: dict[str, object]) -> None:
        self._stream.send(message)

    def over(self, number: int) -> None:
        """That connection has ended."""
        self._connections.pop(number, None)

    def _stopped(self) -> None:
        raise SandboxClosed("the sandbox is closed")

    def _arm(self) -> None:
        full = self._stream.queued > _FULL
        if full != self.full:
            self.full = full
            for one in list(self._connections.values()):
                one.settle()
        waiting = select.POLLOUT if self._stream.queued else 0
        self.loop.watch(self._stream.fileno(), select.POLLIN | waiting, self._stream_ready)

    def _stream_ready(self) -> None:
        self._stream.flush()
        for message, _ in self._stream.receive():
            kind, number = message["t"], message.get("id")
            if kind == "setup":
                self._begin()
            elif kind == "datagram":
                self._answer(message)
            elif kind == "close":
                self._stopped()
            elif number in self._connections:  # else it has ended meanwhile
                self._connections[number].heard(message)

    def _begin(self) -> None:
        """The other end is ready: from now on connections are accepted."""
        self.send({"t": "ready", "sockets": list(self._listening)})
        for name, sock in self._listening.items():
            sock.setblocking(False)
            ready = self._receive if name.startswith("udp") else self._accept
            self.loop.watch(sock.fileno(), select.POLLIN, lambda name=name, sock=sock, ready=ready: ready(name, sock))  # type: ignore[misc]

    def _accept(self, name: str, listener: socket.socket | CarriedListener) -> None:
        for _ in range(_AT_ONCE):
            try:
                line, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor is left
                time.sleep(_PAUSE)
                return
            if len(self._connections) >= MOST_CONNECTIONS:
                _reset(line)
                continue
            try:
                self._forward(name, line)
            except OSError:  # the tenant has reset it already, or no descriptor is left
                _reset(line)

    def _forward(self, name: str, line: socket.socket) -> None:
        """Tells the other end of a connection. Raises OSError."""
        (address, port), (origin, origin_port) = line.getsockname()[:2], line.getpeername()[:2]
        self._next += 1
        connection = ForwardedConnection(self, self._next, line)
        told = {"address": address, "port": port, "from": origin, "from_port": origin_port}
        self.send({"t": "accepted", "id": self._next, "socket": name, **told})
        self._connections[self._next] = connection

    def _receive(self, name: str, sock: socket.socket | CarriedDatagrams) -> None:
        for _ in range(_AT_ONCE):
            try:
                data, control, _, sender = sock.recvmsg(_DATAGRAM, 128)
            except BlockingIOError:
                return
            except OSError:
                continue  # an ICMP error for an earlier answer that nobody received
            if self.full:
                continue  # it is lost
            self._next += 1
            self._asked[self._next] = from_same(control), sender
            if len(self._asked) > _ASKED:
                self._asked.popitem(last=False)
            self.send({"t": "datagram", "socket": name, "peer": self._next.to_bytes(8, "big"), "data": data})

    def _answer(self, message: dict[str, Any]) -> None:
        sock, peer, data = self._listening.get(message.get("socket", "")), message.get("peer"), message.get("data")
        if sock is None or not isinstance(peer, bytes) or not isinstance(data, bytes):
            raise GuestError("something else than the answer to a datagram")
        found = self._asked.pop(int.from_bytes(peer, "big"), None)
        if found is not None:
            try:
                sock.sendmsg([data], found[0], 0, found[1])  # type: ignore[union-attr]
            except OSError:
                pass  # nobody waits for it any more


class ForwardedConnection:
    """A connection that a tenant made."""

    def __init__(self, way: Forwarder, number: int, line: socket.socket) -> None:
        self._way = way
        self._number = number
        self._line = line
        line.setblocking(False)
        self._ends = _both_ends(line)
        self._source = Source(way.loop, self._ends[0], self._said)
        self._sink = Sink(way.loop, self._ends[1], lambda more: self._tell("credit", fd=0, n=more))
        self._sink.drained = self.settle
        self._sink.closed = self._unread
        self._silent = False  # the tenant says no more
        self._answered = False  # …and is told no more
        self.settle()

    def heard(self, message: dict[str, Any]) -> None:
        """A frame from the other end. Raises GuestError for one that is not allowed."""
        kind, data = message["t"], message.get("data")
        if kind == "in" and isinstance(data, bytes):
            self._answered = self._answered or not data
            self._sink.put(data)
        elif kind == "credit" and message.get("fd") == 1:
            self._source.give(message.get("n"))
        elif kind == "cancel":
            self.reset()
            self._tell("ended")
            return
        else:
            raise GuestError("something else than a frame about a connection")
        self.settle()

    def settle(self) -> None:
        """Call this after anything has happened."""
        if self._line.fileno() < 0:
            return  # it is over
        if self._silent and self._answered and self._sink.empty:
            self._close()
            self._tell("ended")
        else:
            self._source.arm(self._way.full)

    def _tell(self, kind: str, **more: object) -> None:
        self._way.send({"t": kind, "id": self._number, **more})

    def _said(self, data: bytes) -> None:
        self._silent = self._silent or not data
        self._tell("out", fd=1, data=data)
        self.settle()

    def _unread(self) -> None:
        """The tenant reads no more."""
        self._answered = True
        self._tell("closed", fd=0)
        self.settle()

    def reset(self) -> None:
        """Ends it at once, with an error for the tenant."""
        self._release()
        _reset(self._line)

    def _close(self) -> None:
        self._release()
        self._line.close()

    def _release(self) -> None:
        self._way.over(self._number)
        for end in self._ends:
            self._way.loop.forget(end.fd)
            end.close()


def _both_ends(line: socket.socket) -> tuple[SocketEnd, SocketEnd]:
    first = SocketEnd(line)
    try:
        return first, SocketEnd(line)
    except OSError:
        first.close()
        raise


def _reset(line: socket.socket) -> None:
    try:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    line.close()
