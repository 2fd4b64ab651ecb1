"""WebSockets: the handshake is an ordinary request; the frames after it are parsed and written again, with wsproto.

Passing the bytes unparsed would be simpler, but then "Upgrade" could be used to send anything to an allowed host. So
only frames pass, each message is searched for placeholders, and extensions (compression) are not negotiated.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import TYPE_CHECKING

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from sandbox.errors import Denied
from sandbox.network.http.http1_upstream import UpstreamError
from sandbox.network.stream import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Protocol

    from wsproto.events import Event

    from sandbox.network.http.message import Request, Response
    from sandbox.network.stream import ByteStream

    Change = Callable[[bytes, bool], bytes]

    class MessageGuard(Protocol):
        """What may pass: `secrets.message_guard.MessageGuard`."""

        def outgoing(self) -> Change: ...

        def incoming(self) -> Change: ...

        def refuse_in(self, payload: bytes) -> None: ...

        def scrubbed(self, payload: bytes) -> bytes: ...


_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
POLICY_VIOLATION = 1008
GATHERED = 256  # parts of a message that are passed on as one


def refuse_other_upgrade(request: Request, response: Response) -> None:
    """Raises UpstreamError unless `response` accepts exactly the WebSocket that `request` asked for."""
    key = (request.headers.get("Sec-WebSocket-Key") or "").encode("latin-1")
    accepted = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
    answer = response.headers
    if (answer.get("Upgrade") or "").lower() != "websocket" or answer.get("Sec-WebSocket-Accept") != accepted:
        raise UpstreamError("upstream did not accept the WebSocket that was requested")
    if answer.get("Sec-WebSocket-Extensions") is not None:
        raise UpstreamError("upstream uses a WebSocket extension that was not offered")


class FrameRelay:
    """Frames in both directions, until one side closes."""

    def __init__(self, tenant: ByteStream, upstream: ByteStream, guard: MessageGuard) -> None:
        self._tenant, self._upstream = tenant, upstream
        self._inside, self._outside = Connection(ConnectionType.SERVER), Connection(ConnectionType.CLIENT)
        self._guard = guard
        self.sent = self.received = 0
        self.problem: Exception | None = None

    async def run(self, from_tenant: bytes, from_upstream: bytes) -> None:
        """Moves frames; what was already read comes first. Sets `problem` when it did not end normally."""
        out = self._move(self._tenant, self._inside, self._upstream, self._outside, from_tenant, self._guard.outgoing)
        back = self._move(
            self._upstream, self._outside, self._tenant, self._inside, from_upstream, self._guard.incoming
        )
        tasks = {asyncio.ensure_future(out), asyncio.ensure_future(back)}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        except (Denied, RemoteProtocolError, LocalProtocolError, OSError) as problem:
            self.problem = problem
            if isinstance(problem, Denied):
                await self._refuse(problem)
        finally:
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._tenant.close()
            self._upstream.close()

    async def _move(
        self,
        source: ByteStream,
        reading: Connection,
        sink: ByteStream,
        writing: Connection,
        ahead: bytes,
        guard: Callable[[], Change],
    ) -> None:
        change: Change | None = None
        outgoing = sink is self._upstream
        data, turns = ahead or await source.read(), Turns()
        while data:
            turns.begin()
            if outgoing:
                self.sent += len(data)
            else:
                self.received += len(data)
            reading.receive_data(data)
            out = b""
            for event in _gathered(reading.events()):
                await turns.end()
                if isinstance(event, CloseConnection | Ping | Pong):
                    event = self._control(event, outgoing)
                if isinstance(event, CloseConnection):
                    await sink.write(out + writing.send(event))
                    await source.write(reading.send(event.response()))
                    return
                if isinstance(event, TextMessage | BytesMessage):
                    change = change or guard()
                    out += writing.send(_changed(event, change))
                    if event.message_finished:
                        change = None
                elif isinstance(event, Ping | Pong):
                    out += writing.send(event)
            if out:
                await sink.write(out)
            data = await source.read()

    def _control(self, event: CloseConnection | Ping | Pong, outgoing: bool) -> CloseConnection | Ping | Pong:
        """A control frame as it may be passed on. Raises Denied."""
        payload = (event.reason or "").encode() if isinstance(event, CloseConnection) else bytes(event.payload)
        if outgoing:
            self._guard.refuse_in(payload)
            return event
        payload = self._guard.scrubbed(payload)
        if isinstance(event, CloseConnection):
            return CloseConnection(event.code, payload.decode() or None)
        return type(event)(payload)

    async def _refuse(self, problem: Denied) -> None:
        reason = problem.reason.encode()[:120].decode(errors="ignore")
        try:
            await self._tenant.write(self._inside.send(CloseConnection(POLICY_VIOLATION, reason)))
        except (OSError, LocalProtocolError):
            pass


def _gathered(events: Iterable[Event]) -> Iterator[Event]:
    """`events` with the parts of each message joined: inspecting a thousand frames of one byte would take as long as
    inspecting a thousand long ones. Control frames may overtake an unfinished message."""
    parts: list[TextMessage | BytesMessage] = []
    for event in events:
        if not isinstance(event, TextMessage | BytesMessage):
            yield event
            continue
        parts.append(event)
        if event.message_finished or len(parts) >= GATHERED:
            yield _joined(parts)
            parts = []
    if parts:
        yield _joined(parts)


def _joined(parts: list[TextMessage | BytesMessage]) -> TextMessage | BytesMessage:
    last = parts[-1]
    if len(parts) == 1:
        return last
    ends = {"frame_finished": last.frame_finished, "message_finished": last.message_finished}
    if isinstance(last, TextMessage):  # then all of them are
        return TextMessage("".join(str(one.data) for one in parts), **ends)
    return BytesMessage(b"".join(one.data for one in parts if isinstance(one, BytesMessage)), **ends)


def _changed(event: TextMessage | BytesMessage, change: Change) -> TextMessage | BytesMessage:
    finished = event.message_finished
    if isinstance(event, TextMessage):
        text = change(event.data.encode(), finished).decode()
        return TextMessage(text, frame_finished=event.frame_finished, message_finished=finished)
    data = change(bytes(event.data), finished)
    return BytesMessage(data, frame_finished=event.frame_finished, message_finished=finished)
