"""The upstream side of HTTP/1.1, with h11: sends Requests and reads Responses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import h11

from sandbox.errors import Denied
from sandbox.network.http.body import EMPTY, Body, Whole
from sandbox.network.http.headers import Headers
from sandbox.network.http.http1_rules import answer_trailers
from sandbox.network.http.message import BadMessage, Request, Response
from sandbox.network.stream import Turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.network.http.headers import Pair
    from sandbox.network.stream import ByteStream

    Happened = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]

MAX_HEAD = 256 * 1024
MOST_INTERIM = 64  # informational answers (1xx) to one request
GATHERED = 256  # chunks of an answer that are passed on as one: each would be written, and inspected, by itself
CONTINUE_TIMEOUT = 1.0  # seconds, as in curl: a server that does not know `Expect` sends nothing
_NOT_SENT = frozenset((b"host", b"transfer-encoding", b"connection", b"upgrade"))


class UpstreamError(OSError):
    """Upstream could not be reached, closed the connection or sent invalid data. The tenant may see the message."""

    def __init__(self, reason: str, *, nothing_came: bool = False) -> None:
        self.nothing_came = nothing_came
        super().__init__(reason)


class Http1Upstream:
    """One connection; one exchange at a time."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._pump: asyncio.Task[None] | None = None
        self._pump_problem: Exception | None = None
        self._continue: asyncio.Event | None = None
        self._turns = Turns()
        self._after: Happened | None = None  # an event that came behind a gathered piece
        self._busy = self._heard = self._closed = False
        self.used = False
        self._listening: asyncio.Task[None] | None = None
        self.when_left: Callable[[], None] | None = None  # called when upstream ends an idle connection

    def listen(self) -> None:
        """Notices when upstream closes the idle connection. With TLS this needs a read: its close_notify is data."""
        self._listening = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        try:
            await self._stream.read()
        except OSError:
            pass
        # The connection ended, or an unrequested response arrived; neither leaves it usable.
        self.close()
        if self.when_left is not None:
            self.when_left()

    def _stop_listening(self) -> None:
        if self._listening is not None and self._listening is not asyncio.current_task():
            self._listening.cancel()
        self._listening = None

    @property
    def usable(self) -> bool:
        """Whether another request can be sent."""
        return not self._closed and not self._busy and not self._stream.ended and self._h11.our_state is h11.IDLE

    @property
    def over(self) -> bool:
        """Whether it will never be used again."""
        return self._closed or (not self._busy and not self.usable)

    def reserve(self) -> None:
        """Reserves the connection for the caller's request."""
        self._busy = True
        self._stop_listening()

    def close(self) -> None:
        """Closes the connection, also in the middle of a request."""
        self._closed = True
        self._stop_listening()
        if self._pump is not None:
            self._pump.cancel()
        self._stream.close()

    async def send(self, request: Request) -> Response:
        """Sends `request` and returns when the response's head has arrived. Raises UpstreamError, or Denied when the
        body contains something that must not be sent."""
        self._heard = False
        try:
            await self._send_head(request)
            return await self._response(request)
        except BaseException:
            self.close()
            raise

    async def _send_head(self, request: Request) -> None:
        body, pairs = request.stream, _fields(request)
        try:
            event = h11.Request(method=request.method, target=request.target.encode("latin-1"), headers=pairs)
            out = self._h11.send(event) or b""
        except h11.LocalProtocolError:  # its words repeat the field, and values are in it by now
            raise BadMessage("the request cannot be sent on: its method, target or a field is not valid") from None
        if isinstance(body, Whole) or body is EMPTY:
            out += (self._h11.send(h11.Data(body.data)) or b"") if isinstance(body, Whole) and body.data else b""
            out += self._h11.send(h11.EndOfMessage()) or b""
        try:
            await self._stream.write(out)
        except OSError as problem:
            raise UpstreamError(f"upstream went away: {problem}", nothing_came=True) from None
        if not (isinstance(body, Whole) or body is EMPTY):
            self._continue = asyncio.Event() if request.headers.get("Expect") else None
            self._pump = asyncio.ensure_future(self._send_body(body))

    async def _send_body(self, body: Body) -> None:
        try:
            if self._continue is not None:
                try:
                    async with asyncio.timeout(CONTINUE_TIMEOUT):
                        await self._continue.wait()
                except TimeoutError:
                    pass
            while piece := await body.read():
                await self._stream.write(self._h11.send(h11.Data(piece)) or b"")
            await self._stream.write(self._h11.send(h11.EndOfMessage()) or b"")
        except (Denied, BadMessage, OSError, h11.LocalProtocolError) as problem:
            # Reading fails now too, with this problem. Aborted, not closed: an incomplete body must not look complete.
            self._pump_problem = problem
            self._stream.abort()

    async def _response(self, request: Request) -> Response:
        interim = 0
        while True:
            event = await self.next_event()
            if isinstance(event, h11.InformationalResponse):
                interim += 1
                if interim > MOST_INTERIM:
                    raise UpstreamError("upstream sends interim answers without end")
                if event.status_code == 101:
                    response = Response(101, Headers(event.headers.raw_items()))
                    response.switched = (self._stream, self._h11.trailing_data[0])
                    return response
                if event.status_code == 100 and self._continue is not None:
                    self._continue.set()
                if request.inform is not None:
                    await request.inform(event.status_code, list(event.headers.raw_items()))
            elif isinstance(event, h11.Response):
                response = Response(event.status_code, Headers(event.headers.raw_items()))
                response.last = self._h11.their_state is h11.MUST_CLOSE or _closes(event)
                response.stream = self._body(event)
                return response
            else:
                raise UpstreamError("upstream closed the connection without answering", nothing_came=True)

    def _body(self, head: h11.Response) -> Body:
        """The body after `head`: whole when it has already arrived, else as a stream."""
        pieces: list[bytes] = []
        while True:
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as problem:
                raise UpstreamError(self._told(problem)) from None
            if isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            if isinstance(event, h11.Data) and len(pieces) < GATHERED:
                continue
            if isinstance(event, h11.EndOfMessage):
                trailers = answer_trailers(event.headers.raw_items())
                self.finish()
                return Whole(b"".join(pieces), trailers) if pieces or trailers else EMPTY
            declared = next((value for name, value in head.headers if name == b"content-length"), None)
            return UpstreamBody(self, b"".join(pieces), None if declared is None else int(declared))

    async def next_event(self) -> Happened:
        """The next event from upstream. Raises UpstreamError, or what went wrong with the request's body."""
        if self._after is not None:
            event, self._after = self._after, None
            return event
        await self._turns.end()
        try:
            while (event := self._h11.next_event()) is h11.NEED_DATA:
                data = await self._stream.read()
                self._turns.begin()
                self._heard = self._heard or bool(data)
                self._h11.receive_data(data)
            return self._gathered(event) if isinstance(event, h11.Data) else event
        except (h11.RemoteProtocolError, OSError) as problem:
            if self._pump_problem is not None:
                raise self._pump_problem from None
            if not self._heard:
                raise UpstreamError("upstream closed the connection without answering", nothing_came=True) from None
            raise UpstreamError(self._told(problem)) from None

    def _gathered(self, first: h11.Data) -> h11.Data:
        """`first` joined with what has arrived behind it."""
        pieces = [bytes(first.data)]
        while len(pieces) < GATHERED:
            event = self._h11.next_event()
            if not isinstance(event, h11.Data):
                self._after = None if event is h11.NEED_DATA else event
                break
            pieces.append(bytes(event.data))
        return h11.Data(b"".join(pieces))

    def _told(self, problem: Exception) -> str:
        """`problem` in words that repeat nothing of what upstream sent: a value could be in it, in any form."""
        if not isinstance(problem, h11.RemoteProtocolError):
            return f"upstream went away within its answer: {problem}"
        ended = self._h11.trailing_data[1]
        return "upstream closed the connection within its answer" if ended else "upstream's answer is malformed"

    def finish(self) -> None:
        """The response is complete: the connection can be reused, unless the request was not sent whole."""
        if self._pump is not None:
            self._pump.cancel()
            self._pump = None
        unasked = self._h11.trailing_data[0]  # behind the answer: it would be taken for the next one
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE and not unasked:
            self._h11.start_next_cycle()
            self._busy, self.used = False, True
            self.listen()
        else:
            self.close()


def _closes(head: h11.Response) -> bool:
    """Whether upstream will close the connection after this response."""
    words = [value.lower() for name, value in head.headers if name == b"connection"]
    return head.http_version == b"1.0" or any(b"close" in one for one in words)


def _fields(request: Request) -> list[Pair]:
    pairs: list[Pair] = [(b"Host", request.authority.encode("ascii"))]
    pairs += [pair for pair in request.headers.pairs if pair[0].lower() not in _NOT_SENT]
    if request.headers.get("Upgrade") is not None:
        pairs += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
    if request.stream.length is None:
        pairs.append((b"Transfer-Encoding", b"chunked"))
    elif request.stream is not EMPTY and request.headers.get("Content-Length") is None:
        pairs.append((b"Content-Length", b"%d" % request.stream.length))
    return pairs


class UpstreamBody(Body):
    """The content of a response, as it arrives."""

    def __init__(self, connection: Http1Upstream, first: bytes, length: int | None) -> None:
        self._connection = connection
        self._first = first
        self._ended = False
        self.length = length

    async def read(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        if self._ended:
            return b""
        event = await self._connection.next_event()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        self._ended = True
        if isinstance(event, h11.EndOfMessage):
            self.trailers = answer_trailers(event.headers.raw_items())
        self._connection.finish()
        return b""

    def close(self) -> None:
        if not self._ended:
            self._ended = True
            self._connection.close()
