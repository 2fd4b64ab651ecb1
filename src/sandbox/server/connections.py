"""Limits on connections: how long one may stay open without a whole request, and how many there may be.

Connecting needs no token. So a connection without a request in progress has only seconds to send one, and is the first
to be dropped when there are too many. Used only from the event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import resource
from functools import partial
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD = 10.0  # seconds from the connection, or from the last answer, to the end of the next request's head
BODY = 30.0  # seconds without a byte of a body that a route waits for
LEFTOVER = 5.0  # seconds for the rest of a body after the answer
PEER = "sandbox.peer"  # in the scope: the digest of the client's certificate, where it showed one
# Connections that asyncio accepts before it tells us of the first. With uvicorn's own 2048 the descriptors are used up,
# and the server ended, before there is anything to drop.
BACKLOG = 100
MOST = 4096  # connections; fewer where the machine allows fewer descriptors


class IdleConnections:
    """The connections without a request in progress, oldest first."""

    def __init__(self, most: int | None = None) -> None:
        self._waiting: dict[Bounded, None] = {}
        self.most = most if most is not None else min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)

    def add(self, connection: Bounded) -> None:
        self._waiting[connection] = None

    def discard(self, connection: Bounded) -> None:
        self._waiting.pop(connection, None)

    def make_room(self, there: int) -> None:
        """Drops the oldest waiting connections until there are at most `most` connections in all."""
        while there > self.most and self._waiting:
            oldest = next(iter(self._waiting))
            self.discard(oldest)
            oldest.transport.abort()
            there -= 1


class Bounded(H11Protocol):
    """One connection. `bounded` sets `waiting`, which all connections of a server share."""

    waiting: IdleConnections
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = _peer(transport)
        if peer:
            self.app: Any = partial(_with_peer, self.app, peer)
            self.ws_protocol_class = partial(_upgraded, self.ws_protocol_class, self.app)  # type: ignore[assignment]
        self.waiting.add(self)
        self.waiting.make_room(len(self.connections))
        self._limit(HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._leave()
        elif self._under_way:  # the next request arrived together with this one
            self._look()
        else:
            self.waiting.add(self)
            half = self.conn.their_state is h11.SEND_BODY
            self._limit(LEFTOVER if half else HEAD)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._leave()
        super().handle_websocket_upgrade(event)

    # -- the limit

    @property
    def _under_way(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _look(self) -> None:
        """Called when data arrived. A head has one time limit in all; a body has one for each pause."""
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        if not self._under_way:
            if self._timer is None:
                self._limit(HEAD)
            return
        self.waiting.discard(self)
        self._limit(BODY if self.conn.their_state is h11.SEND_BODY else None)

    def _limit(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        self._timer = None
        if self._under_way and self.flow.read_paused:
            self._limit(BODY)  # the route is not reading; the client is not at fault
            return
        self.transport.abort()

    def _leave(self) -> None:
        self._limit(None)
        self.waiting.discard(self)


def _peer(transport: asyncio.BaseTransport) -> str:
    line = transport.get_extra_info("ssl_object")
    shown = line.getpeercert(binary_form=True) if line is not None else None
    return hashlib.sha256(shown).hexdigest() if shown else ""


async def _with_peer(app: Any, peer: str, scope: Any, receive: Any, send: Any) -> None:
    scope[PEER] = peer
    await app(scope, receive, send)


def _upgraded(kind: Any, app: Any, **given: Any) -> Any:
    """The protocol of a WebSocket that was an HTTP connection."""
    made = kind(**given)
    made.app = app
    return made


def bounded(most: int | None = None) -> type[asyncio.Protocol]:
    """The protocol class for the connections of one server."""
    shared: dict[str, Any] = {"waiting": IdleConnections(most)}
    return type("Connection", (Bounded,), shared)
