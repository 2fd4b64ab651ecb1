"""The tenant's side of HTTP/2: each stream becomes a Request, handled in a task of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import h2.events
import h2.exceptions
from h2.errors import ErrorCodes

from sandbox.errors import Denied
from sandbox.network.http.body import EMPTY, Body, Whole
from sandbox.network.http.headers import Headers
from sandbox.network.http.http1_rules import no_connect, refuse_odd_method, refuse_odd_target, refuse_other_host
from sandbox.network.http.http1_tenant import IDLE_TIMEOUT
from sandbox.network.http.http2 import Http2Body, Http2Side, declared_length, http2_fields
from sandbox.network.http.message import BadMessage, Request

if TYPE_CHECKING:
    from sandbox.network.http.headers import Pair
    from sandbox.network.http.http1_tenant import Handler
    from sandbox.network.http.http2_frames import GoAway
    from sandbox.network.stream import ByteStream

# Opening and resetting a stream costs the sender nothing, but costs us a connection. A client that resets more streams
# than it lets finish is attacking (CVE-2023-44487), and its connection is closed.
FREE_RESETS = 100


class Http2Tenant(Http2Side):
    """Answers streams as they come, each at its own pace."""

    def __init__(self, stream: ByteStream, scheme: str, host: str, port: int, handle: Handler) -> None:
        super().__init__(stream, client=False)
        self._scheme, self._host, self._port = scheme, host, port
        self._handle = handle
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._bodies: dict[int, Http2Body] = {}
        self._resets = self._finished = 0
        self._alone = False

    async def serve(self) -> None:
        """Serves until one side closes."""
        await self.start()
        try:
            while True:
                try:
                    async with asyncio.timeout(IDLE_TIMEOUT):
                        data = await self._stream.read()
                except TimeoutError:
                    if self._tasks:
                        continue
                    raise
                if not data or not await self._receive(data):
                    return
        finally:
            self._gone = ConnectionResetError("the connection is closed")
            self.wake()
            for task in list(self._tasks.values()):
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def upstream_gone(self) -> None:
        """Upstream closed its connection: closes this one too, once it is idle."""
        self._alone = True
        if not self._tasks and self._gone is None:
            self._gone = ConnectionResetError("upstream closed the connection")
            task = asyncio.ensure_future(self._leave())
            self._leaving = task  # the loop holds tasks only weakly
            task.add_done_callback(lambda one: one.cancelled() or one.exception())

    async def _leave(self) -> None:
        self._h2.close_connection()
        try:
            await self.flush()
        finally:
            self._stream.close()

    async def _receive(self, data: bytes) -> bool:
        try:
            events = self.receive(data)
        except h2.exceptions.ProtocolError:
            await self.flush()  # send the GOAWAY that says what was wrong
            return False
        for event in events:
            if isinstance(event, h2.events.ConnectionTerminated):
                return False
            self._handle_event(event)
        if self._resets > FREE_RESETS + 2 * self._finished:
            self._h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            await self.flush()
            return False
        await self.flush()
        return True

    def _handle_event(self, event: h2.events.Event | GoAway) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self._begin(event.stream_id, list(event.headers), ended=event.stream_ended is not None)
        elif isinstance(event, h2.events.DataReceived):
            body = self._bodies.get(event.stream_id)
            if body is not None:
                body.feed(event.data, event.flow_controlled_length)
            elif event.flow_controlled_length:
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.TrailersReceived):
            if body := self._bodies.get(event.stream_id):
                body.end(tuple(event.headers), _cut_short(body))
        elif isinstance(event, h2.events.StreamEnded):
            if body := self._bodies.get(event.stream_id):
                body.end()
        elif isinstance(event, h2.events.StreamReset):
            self._resets += 1
            if task := self._tasks.get(event.stream_id):
                task.cancel()
        elif isinstance(event, h2.events.WindowUpdated | h2.events.RemoteSettingsChanged):
            self.wake()

    def _begin(self, stream_id: int, pairs: list[Pair], *, ended: bool) -> None:
        body: Body = EMPTY
        problem = _unclear_length(pairs, ended=ended)
        if not ended:
            body = self._bodies[stream_id] = Http2Body(self, stream_id, None if problem else declared_length(pairs))
        request = self._request(stream_id, pairs, body)
        request.problem = request.problem or problem
        task = asyncio.ensure_future(self._answer(stream_id, request))
        self._tasks[stream_id] = task
        task.add_done_callback(lambda _: self._forget(stream_id))

    def _request(self, stream_id: int, pairs: list[Pair], body: Body) -> Request:
        pseudo = {name: value for name, value in pairs if name.startswith(b":")}
        headers = Headers(pair for pair in pairs if not pair[0].startswith(b":"))

        async def inform(status: int, fields: list[Pair]) -> None:
            try:
                self._h2.send_headers(stream_id, [(b":status", b"%d" % status), *http2_fields(fields)])
            except h2.exceptions.ProtocolError:
                return  # the tenant has just reset this stream
            await self.flush()

        method, target = (
            pseudo.get(b":method", b"").decode("latin-1"),
            pseudo.get(b":path", b"").decode("latin-1"),
        )
        request = Request(method, self._scheme, self._host, self._port, target or "/", headers, body, inform=inform)
        try:
            self._refuse(pseudo, headers)
        except BadMessage as problem:
            request.problem = problem
        return request

    def _refuse(self, pseudo: dict[bytes, bytes], headers: Headers) -> None:
        if pseudo.get(b":method") == b"CONNECT":
            raise no_connect()
        refuse_odd_method(pseudo.get(b":method", b""))
        if pseudo.get(b":scheme", b"").decode("latin-1") != self._scheme:
            raise BadMessage("the request's scheme is not the connection's")
        path = pseudo.get(b":path", b"")
        if not path.startswith(b"/") and not (path == b"*" and pseudo[b":method"] == b"OPTIONS"):
            raise BadMessage("the request's path is invalid")
        refuse_odd_target(path.decode("latin-1"))
        hosts = [value for value in (pseudo.get(b":authority"), *_hosts(headers)) if value is not None]
        if not hosts:
            raise BadMessage("the request names no host")
        for host in hosts:
            refuse_other_host(host, self._host, self._port)

    async def _answer(self, stream_id: int, request: Request) -> None:
        stream: Body = EMPTY
        try:
            response = await self._handle(request)
            stream = response.stream
            if request.method == "HEAD" or response.status in (204, 304):
                stream.close()
                stream = EMPTY
            pairs = [(b":status", b"%d" % response.status), *http2_fields(response.headers.pairs)]
            empty = stream is EMPTY or (isinstance(stream, Whole) and not stream.data and not stream.trailers)
            self._h2.send_headers(stream_id, pairs, end_stream=empty)
            if not empty:
                if not isinstance(stream, Whole):
                    await self.flush()  # the body may take a while
                await self.send_body(stream_id, stream, trailers=True)
            await self.flush()
            self._finished += 1
            if (body := self._bodies.get(stream_id)) and not body.ended:
                await self.reset(stream_id, ErrorCodes.NO_ERROR)  # answered early: the rest is not needed
        except (OSError, Denied, BadMessage, TimeoutError, h2.exceptions.ProtocolError):
            await self.reset(stream_id, ErrorCodes.INTERNAL_ERROR)
        finally:
            stream.close()

    def _forget(self, stream_id: int) -> None:
        self._tasks.pop(stream_id, None)
        if self._alone and not self._tasks:
            self.upstream_gone()
        body = self._bodies.pop(stream_id, None)
        unread = body.unread() if body is not None else 0
        if unread and self._gone is None:
            try:
                self._h2.acknowledge_received_data(unread, stream_id)
            except h2.exceptions.ProtocolError:
                pass


def _unclear_length(pairs: list[Pair], *, ended: bool) -> BadMessage | None:
    """What is wrong with the length that a request declares. h2 compares it with DATA frames and nothing else. A server
    that passes the request on over HTTP/1.1 would take what follows as the missing body."""
    lengths = [value for name, value in pairs if name.replace(b"_", b"-") == b"content-length"]
    if any(name.replace(b"_", b"-") == b"transfer-encoding" for name, _ in pairs):
        return BadMessage("Transfer-Encoding in HTTP/2")
    if len(lengths) > 1 or not all(value.isdigit() for value in lengths):
        return BadMessage("more than one Content-Length, or one that is not a number")
    if ended and lengths and int(lengths[0]):
        return BadMessage("a Content-Length without a body")
    return None


def _cut_short(body: Http2Body) -> BadMessage | None:
    """What is wrong with a body that ends now, with its trailers."""
    if body.length is None or body.came == body.length:
        return None
    return BadMessage("the body is not as long as Content-Length says")


def _hosts(headers: Headers) -> list[bytes]:
    return [value for name, value in headers.pairs if name == b"host"]
