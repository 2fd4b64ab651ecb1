"""The upstream side of HTTP/2: many exchanges over one connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import h2.events
import h2.exceptions
from h2.errors import ErrorCodes

from sandbox.errors import Denied
from sandbox.network.http.body import EMPTY
from sandbox.network.http.headers import Headers
from sandbox.network.http.http1_rules import answer_trailers
from sandbox.network.http.http1_upstream import MOST_INTERIM, UpstreamError
from sandbox.network.http.http2 import Http2Body, Http2Side, declared_length, http2_fields
from sandbox.network.http.http2_frames import GoAway
from sandbox.network.http.message import BadMessage, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.network.http.body import Body
    from sandbox.network.http.headers import Pair
    from sandbox.network.http.message import Request
    from sandbox.network.stream import ByteStream


class Http2Upstream(Http2Side):
    """One connection with concurrent exchanges."""

    def __init__(self, stream: ByteStream) -> None:
        super().__init__(stream, client=True)
        self._streams: dict[int, _Answer] = {}
        self._reader: asyncio.Task[None] | None = None
        self._endings: set[asyncio.Task[None]] = set()
        self._leaving = False
        self.used = False
        self.when_left: Callable[[], None] | None = None  # called when upstream has ended the connection

    @property
    def usable(self) -> bool:
        """Whether another request can be sent."""
        return self._gone is None and not self._leaving and not self._stream.ended

    @property
    def over(self) -> bool:
        """Whether it will never be used again."""
        return not self.usable and not self._streams

    def reserve(self) -> None:
        """Does nothing: the connection takes any number of requests."""

    def close(self) -> None:
        """Closes the connection and ends every exchange on it."""
        if self._reader is not None:
            self._reader.cancel()
        self._fail(ConnectionResetError("the connection is closed"))
        self._stream.close()

    async def send(self, request: Request) -> Response:
        """Sends `request` and returns when the response's head has arrived. Raises UpstreamError, or Denied when the
        body contains something that must not be sent."""
        try:
            if self._reader is None:
                self._reader = asyncio.ensure_future(self._read())
                await self.start()
            stream_id = await self._begin(request)
        except OSError as problem:
            raise UpstreamError(f"upstream went away: {problem}", nothing_came=True) from None
        except h2.exceptions.ProtocolError as problem:  # its words may repeat a field, and values are in it by now
            raise UpstreamError(f"upstream went away ({type(problem).__name__})", nothing_came=True) from None
        answer = self._streams[stream_id]
        try:
            if request.stream is not EMPTY:
                answer.pump = asyncio.ensure_future(self._pump(stream_id, request.stream))
            return await answer.head
        except BaseException:
            self._forget(stream_id)
            await self.reset(stream_id, ErrorCodes.CANCEL)
            raise
        finally:
            self.used = True

    async def _begin(self, request: Request) -> int:
        while self._h2.open_outbound_streams >= self._h2.remote_settings.max_concurrent_streams:
            if self._gone is not None:
                raise self._gone
            await self._wait_for_change()
        pairs: list[Pair] = [
            (b":method", request.method.encode("latin-1")),
            (b":scheme", request.scheme.encode()),
            (b":authority", request.authority.encode("ascii")),
            (b":path", request.target.encode("latin-1")),
            *http2_fields(request.headers.pairs),
        ]
        stream_id = self._h2.get_next_available_stream_id()
        self._h2.send_headers(stream_id, pairs, end_stream=request.stream is EMPTY)
        self._streams[stream_id] = _Answer(self, stream_id, request)
        await self.flush()
        return stream_id

    async def _pump(self, stream_id: int, body: Body) -> None:
        try:
            await self.send_body(stream_id, body, trailers=False)
        except (Denied, BadMessage, OSError, h2.exceptions.ProtocolError) as problem:
            answer = self._streams.get(stream_id)
            if answer is not None:
                answer.fail(problem)
            await self.reset(stream_id, ErrorCodes.CANCEL)

    async def _read(self) -> None:
        problem: Exception = UpstreamError("upstream closed the connection")
        try:
            while data := await self._stream.read():
                for event in self.receive(data):
                    await self._handle_event(event)
                await self.flush()
        except OSError as failure:
            problem = UpstreamError(f"upstream's connection broke: {failure}")
        except h2.exceptions.ProtocolError as failure:  # its words may repeat what upstream sent
            problem = UpstreamError(f"upstream's connection broke: {type(failure).__name__}")
        finally:  # nobody may wait for a response that is no longer read
            self._fail(problem)
            self._stream.close()  # after TLS's close_notify it is up to us to close
        if self.when_left is not None:
            self.when_left()

    async def _handle_event(self, event: h2.events.Event | GoAway) -> None:
        if isinstance(event, GoAway):
            self._leave(event)
        elif isinstance(event, h2.events.WindowUpdated | h2.events.RemoteSettingsChanged):
            self.wake()
        answer = self._streams.get(getattr(event, "stream_id", None) or 0)
        if answer is None:
            if isinstance(event, h2.events.DataReceived) and event.flow_controlled_length:
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.InformationalResponseReceived):
            await answer.inform(list(event.headers))
        elif isinstance(event, h2.events.ResponseReceived):
            answer.begin(list(event.headers), ended=event.stream_ended is not None)
        elif isinstance(event, h2.events.DataReceived):
            answer.body.feed(event.data, event.flow_controlled_length)
        elif isinstance(event, h2.events.TrailersReceived):
            answer.body.end(answer_trailers(event.headers))
        elif isinstance(event, h2.events.StreamEnded):
            answer.body.end()
            if answer.pump is not None and not answer.pump.done():  # answered early: it needs no more
                await self.reset(event.stream_id, ErrorCodes.NO_ERROR)
            self._forget(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            if event.error_code != ErrorCodes.NO_ERROR or not answer.body.ended:
                answer.fail(UpstreamError(f"upstream reset the stream (error {int(event.error_code or 0)})"))
            self._forget(event.stream_id)

    def _leave(self, goodbye: GoAway) -> None:
        """Upstream accepts no new streams; those it has seen continue."""
        self._leaving = True
        for stream_id, answer in list(self._streams.items()):
            unseen = stream_id > goodbye.last_stream_id
            if unseen or goodbye.error_code != ErrorCodes.NO_ERROR:
                answer.fail(UpstreamError("upstream is closing", nothing_came=unseen))
                self._forget(stream_id)

    def _forget(self, stream_id: int) -> None:
        answer = self._streams.pop(stream_id, None)
        if answer is not None and answer.pump is not None and not answer.pump.done():
            answer.pump.cancel()
        self.wake()

    def abandon(self, stream_id: int, body: Http2Body) -> None:
        """Resets a stream whose response will not be read to its end."""
        self._forget(stream_id)
        if self._gone is None:
            task = asyncio.ensure_future(self._abandon(stream_id, body.unread()))
            self._endings.add(task)  # the loop holds tasks only weakly
            task.add_done_callback(self._endings.discard)

    async def _abandon(self, stream_id: int, unread: int) -> None:
        await self.reset(stream_id, ErrorCodes.CANCEL)
        await self.acknowledge(stream_id, unread)

    def _fail(self, problem: Exception) -> None:
        self._gone = self._gone or problem
        for answer in list(self._streams.values()):
            answer.fail(problem)
            if answer.pump is not None:
                answer.pump.cancel()
        self._streams.clear()
        self.wake()


class _Answer:
    """The response of one exchange, as it arrives."""

    def __init__(self, side: Http2Upstream, stream_id: int, request: Request) -> None:
        self._request = request
        self.head: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.body = _AnswerBody(side, stream_id, None)
        self.pump: asyncio.Task[None] | None = None
        self._interim = 0

    async def inform(self, pairs: list[Pair]) -> None:
        """An informational response (100, 103)."""
        status = _status(pairs, 100, 199)
        self._interim += 1
        if self._interim > MOST_INTERIM:
            raise UpstreamError("upstream sends interim answers without end")
        if self._request.inform is not None:
            await self._request.inform(status, [pair for pair in pairs if not pair[0].startswith(b":")])

    def begin(self, pairs: list[Pair], *, ended: bool) -> None:
        """The head has arrived."""
        status = _status(pairs, 200, 999)
        self.body.length = declared_length(pairs)
        headers = Headers(pair for pair in pairs if not pair[0].startswith(b":"))
        if not self.head.done():
            self.head.set_result(Response(status, headers, EMPTY if ended else self.body))

    def fail(self, problem: Exception) -> None:
        """The response will not come, or not completely."""
        self.body.end(problem=problem)
        if not self.head.done():
            self.head.set_exception(problem)
            self.head.exception()  # retrieved, so that asyncio does not warn when nobody waits


def _status(pairs: list[Pair], least: int, most: int) -> int:
    """The number in :status. h2 checks that it is there, not that it is a number. Raises UpstreamError."""
    text = next(value for name, value in pairs if name == b":status")
    # 101 is HTTP/1.1's alone (RFC 9113, 8.6).
    if len(text) != 3 or not text.isdigit() or not least <= int(text) <= most or text == b"101":
        raise UpstreamError("its response has no valid status")
    return int(text)


class _AnswerBody(Http2Body):
    def close(self) -> None:
        if not self._ended and isinstance(self._side, Http2Upstream):
            self._side.abandon(self._stream_id, self)
