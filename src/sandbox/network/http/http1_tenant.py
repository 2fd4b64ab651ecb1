"""The tenant's side of HTTP/1.1, with h11: reads Requests, and sends back the Responses of a handler."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import h11

from sandbox.errors import Denied
from sandbox.network.http.body import EMPTY, Body, Whole
from sandbox.network.http.headers import Headers
from sandbox.network.http.http1_rules import (
    MAX_HEAD,
    asks_for_websocket,
    end_to_end,
    origin_form,
    refuse_ambiguous_head,
    refuse_no_request,
    refuse_other_host,
)
from sandbox.network.http.message import BadMessage, Request, Response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandbox.network.http.headers import Pair
    from sandbox.network.stream import ByteStream

    Handler = Callable[[Request], Awaitable[Response]]

HEAD_TIMEOUT = 30.0  # seconds from a head's first byte to its last; a slow sender only blocks its own connection
IDLE_TIMEOUT = 300.0
DRAINED_READS = 64  # of an unwanted body, before the connection is closed instead


class Http1Tenant:
    """Answers requests one after the other."""

    def __init__(self, stream: ByteStream, scheme: str, host: str, port: int, handle: Handler) -> None:
        self._stream = stream
        self._scheme, self._host, self._port = scheme, host, port
        self._handle = handle
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._ahead = b""  # read, but not yet given to h11
        self._body_end: h11.EndOfMessage | None = None  # seen, but not yet returned
        self._method = ""
        self._idle = self._alone = False
        self._only = False  # whether the connection ends with this request

    async def serve(self) -> None:
        """Serves until one side closes. Raises OSError when the connection breaks, TimeoutError for a slow sender."""
        while True:
            try:
                request = await self._next_request()
            except (BadMessage, h11.RemoteProtocolError) as problem:
                await self._refuse(problem)
                return
            if request is None:
                return
            response = await self._handle(request)
            if response.upgraded is not None:
                await self._upgrade(response)
                return
            # Answered before `100 Continue`: we cannot know whether the body will still come.
            undecided = self._h11.they_are_waiting_for_100_continue
            try:
                await self._answer(response)
            except (Denied, BadMessage, OSError, h11.LocalProtocolError):
                self._stream.abort()  # an incomplete response must not look complete; it has been reported
                return
            finally:
                response.stream.close()
            if undecided or not await self._next_cycle():
                return

    def upstream_gone(self) -> None:
        """Upstream closed its connection: closes this one too, once it is idle."""
        self._alone = True
        if self._idle:
            self._stream.close()

    async def _next_request(self) -> Request | None:
        event = await self._head()
        if event is None:
            return None
        fields = list(event.headers)
        named = next((value for name, value in fields if name == b"host"), None)
        self._method = method = event.method.decode("ascii")
        # A proxy's client: its next request may be for another host.
        self._only = not event.target.startswith((b"/", b"*"))
        target, named = origin_form(method, event.target.decode("ascii"), named, self._scheme)
        if named is not None:  # optional in HTTP/1.0; the connection's own destination counts
            refuse_other_host(named, self._host, self._port)
        body = _body_of(self, fields)
        if body is EMPTY:
            self._h11.next_event()  # the end of the message
        headers = Headers(end_to_end(event.headers.raw_items()))
        if asks_for_websocket(fields):
            headers.pairs += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        return Request(method, self._scheme, self._host, self._port, target, headers, body, inform=self._inform)

    async def _head(self) -> h11.Request | None:
        data, self._ahead = self._ahead, b""
        if not data:
            if self._alone:
                return None
            self._idle = True
            try:
                async with asyncio.timeout(IDLE_TIMEOUT):
                    data = await self._stream.read()
            finally:
                self._idle = False
            if not data:
                return None
        if b"\r\n\r\n" not in data:
            async with asyncio.timeout(HEAD_TIMEOUT):
                while b"\r\n\r\n" not in data:
                    refuse_no_request(data)
                    more = await self._stream.read()
                    if not more:
                        raise BadMessage("the connection ended within a request's head")
                    data += more
        refuse_ambiguous_head(data[: data.index(b"\r\n\r\n") + 4])
        self._h11.receive_data(data)
        event = self._h11.next_event()
        if not isinstance(event, h11.Request):
            raise BadMessage("not a request")
        return event

    async def _answer(self, response: Response) -> None:
        send, body = self._h11.send, response.stream
        pairs = end_to_end(response.headers.pairs)
        if response.last or self._only:
            pairs.append((b"Connection", b"close"))
        bodiless = self._method == "HEAD" or response.status in (204, 304)
        if bodiless:
            body = EMPTY
        out = send(h11.Response(status_code=response.status, headers=pairs, reason=response.phrase)) or b""
        if isinstance(body, Whole):
            out += send(h11.Data(body.data)) or b""
        elif body is not EMPTY:
            await self._stream.write(out)
            out = b""
            while piece := await body.read():
                await self._stream.write(send(h11.Data(piece)) or b"")
        # Only a chunked message can have trailers. h11 chunks a body without a length for HTTP/1.1 clients.
        chunked = not bodiless and self._h11.their_http_version == b"1.1" and "Content-Length" not in response.headers
        trailers = list(body.trailers) if chunked else []
        await self._stream.write(out + (send(h11.EndOfMessage(headers=trailers)) or b""))

    async def _next_cycle(self) -> bool:
        """Whether the connection can be used for another request."""
        try:
            for _ in range(DRAINED_READS):
                if self._h11.their_state is not h11.SEND_BODY or await self.read_body() is None:
                    break
        except h11.RemoteProtocolError:
            return False  # the rest of an unwanted body is malformed; the request has been answered
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            return False
        self._body_end = None
        self._ahead = self._h11.trailing_data[0]
        if self._ahead:
            # h11 would parse the next request at once; its head has to be checked first.
            self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        else:
            self._h11.start_next_cycle()
        return True

    async def read_body(self) -> h11.Data | h11.EndOfMessage | None:
        """The next event of the request's body; None when the tenant closed the connection in the middle."""
        if self._body_end is not None:
            end, self._body_end = self._body_end, None
            return end
        if self._h11.they_are_waiting_for_100_continue:
            await self._inform(100, [])
        while True:
            event = self._h11.next_event()
            if isinstance(event, h11.Data):
                return self._gathered(event)
            if isinstance(event, h11.EndOfMessage):
                return event
            if event is not h11.NEED_DATA:
                return None
            async with asyncio.timeout(IDLE_TIMEOUT):
                data = await self._stream.read()
            if not data:
                return None
            self._h11.receive_data(data)

    def _gathered(self, first: h11.Data) -> h11.Data:
        """`first` joined with the rest of the body that has arrived: inspecting a thousand chunks of one byte would
        take as long as inspecting a thousand long ones."""
        pieces = [first.data]
        while isinstance(event := self._h11.next_event(), h11.Data):
            pieces.append(event.data)
        if isinstance(event, h11.EndOfMessage):
            self._body_end = event
        return h11.Data(b"".join(pieces)) if len(pieces) > 1 else first

    async def _inform(self, status: int, pairs: list[Pair]) -> None:
        if self._h11.their_http_version != b"1.0" and self._h11.our_state is h11.SEND_RESPONSE:
            event = h11.InformationalResponse(status_code=status, headers=end_to_end(pairs), reason=b"")
            await self._stream.write(self._h11.send(event) or b"")

    async def _upgrade(self, response: Response) -> None:
        assert response.upgraded is not None
        event = h11.InformationalResponse(status_code=101, headers=response.headers.pairs, reason=b"")
        await self._stream.write(self._h11.send(event) or b"")
        await response.upgraded(self._stream, self._h11.trailing_data[0])

    async def _refuse(self, problem: Exception) -> None:
        """Says what was wrong and ends the connection: nothing can be read after a malformed message."""
        status = int(getattr(problem, "status", 0) or getattr(problem, "error_status_hint", 400))
        request = Request("-", self._scheme, self._host, self._port, "/", Headers())
        request.problem = BadMessage(str(problem), status)
        response = await self._handle(request)
        fields = b"".join(b"%s: %s\r\n" % pair for pair in response.headers.pairs)
        line = b"HTTP/1.1 %d Refused\r\n" % response.status
        await self._stream.write(line + fields + b"Connection: close\r\n\r\n" + await response.read())


def _body_of(connection: Http1Tenant, fields: list[Pair]) -> Body:
    for name, value in fields:
        if name == b"transfer-encoding":
            return TenantBody(connection, None)
        if name == b"content-length":
            return TenantBody(connection, int(value)) if int(value) else EMPTY
    return EMPTY


class TenantBody(Body):
    """The content of a request, as it arrives."""

    def __init__(self, connection: Http1Tenant, length: int | None) -> None:
        self._connection = connection
        self.length = length
        self._ended = False

    async def read(self) -> bytes:
        if self._ended:
            return b""
        try:
            event = await self._connection.read_body()
        except h11.RemoteProtocolError as problem:
            raise BadMessage(f"the request's body is malformed: {problem}") from None
        if event is None:
            raise ConnectionResetError("the tenant went away within its request")
        if isinstance(event, h11.EndOfMessage):
            self._ended = True
            self.trailers = tuple(event.headers.raw_items())
            return b""
        return bytes(event.data)
