"""What both sides of HTTP/2 share, with h2: bodies under flow control, and writing frames.

h2 keeps the protocol's state and both flow-control windows; this module does the waiting. A received byte is
acknowledged when it has been passed on, so a slow reader on one side slows the sender on the other, and nothing piles
up here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from h2.errors import ErrorCodes

from sandbox.network.http.body import Body
from sandbox.network.http.http2_frames import FrameTooLarge, GoAway, IncomingFrames

if TYPE_CHECKING:
    from sandbox.network.http.headers import Pair
    from sandbox.network.stream import ByteStream

WINDOW = 256 * 1024  # per stream
CONNECTION_WINDOW = 1024 * 1024
MAX_STREAMS = 100
MAX_HEADERS = 64 * 1024
# The size of the table for header compression. The other side may allow 4 GiB, and all of that would be kept and
# searched for every field that is sent.
MAX_TABLE = 4096

_CONNECTION_FIELDS = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"host")
)


def http2_fields(pairs: list[Pair]) -> list[Pair]:
    """Header fields for HTTP/2: names in lower case, and none about the connection."""
    return [(low, value) for name, value in pairs if (low := name.lower()) not in _CONNECTION_FIELDS]


class Http2Body(Body):
    """The content of one stream, as it arrives. Reading acknowledges it, which lets the sender continue."""

    def __init__(self, side: Http2Side, stream_id: int, length: int | None) -> None:
        self._side, self._stream_id = side, stream_id
        self.length = length
        self._data = bytearray()  # not a list: its size is bounded by the window, however small the frames
        self.came = 0  # bytes of content
        self._owed = 0  # bytes to acknowledge in flow control, padding included
        self._ended = False
        self._problem: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        while True:
            data, owed = bytes(self._data), self.unread()
            if owed:
                await self._side.acknowledge(self._stream_id, owed)
            if data:
                return data
            if self._owed:
                continue  # more arrived meanwhile; frames may be all padding
            if self._problem is not None:
                raise self._problem
            if self._ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def feed(self, data: bytes, size: int) -> None:
        """Adds received data; `size` is what it counts for in flow control."""
        self._data += data
        self.came += len(data)
        self._owed += size
        if size:
            self._wake()  # an empty frame changes nothing

    def end(self, trailers: tuple[Pair, ...] = (), problem: Exception | None = None) -> None:
        """No more will come: the body is complete, or `problem` says why not."""
        self.trailers = trailers or self.trailers
        self._ended, self._problem = True, self._problem or problem
        self._wake()

    @property
    def ended(self) -> bool:
        """Whether all of it has arrived."""
        return self._ended

    def unread(self) -> int:
        """Drops what was not read, and returns how much that was for flow control."""
        size, self._owed = self._owed, 0
        self._data.clear()
        return size

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Http2Side:
    """One side of one connection."""

    def __init__(self, stream: ByteStream, *, client: bool) -> None:
        self._stream = stream
        config = h2.config.H2Configuration(client_side=client, header_encoding=None)
        self._h2 = h2.connection.H2Connection(config)
        self._h2.local_settings = h2.settings.Settings(
            client=client,
            initial_values={
                h2.settings.SettingCodes.ENABLE_PUSH: 0,
                h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADERS,
            },
        )
        self._frames = IncomingFrames(client=client)
        self._room: list[asyncio.Future[None]] = []
        self._gone: Exception | None = None

    async def start(self) -> None:
        """Sends the connection's settings."""
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(CONNECTION_WINDOW - 65535)
        await self.flush()

    def receive(self, data: bytes) -> list[h2.events.Event | GoAway]:
        """The events in `data`. Raises ProtocolError; for a too large frame, as soon as its head has arrived."""
        events: list[h2.events.Event | GoAway] = []
        try:
            for piece in self._frames.feed(data, self._h2.max_inbound_frame_size):
                events += [piece] if isinstance(piece, GoAway) else self._h2.receive_data(piece)
        except FrameTooLarge:
            self._h2.close_connection(ErrorCodes.FRAME_SIZE_ERROR)
            raise h2.exceptions.FrameTooLargeError("a frame is larger than was agreed") from None
        if self._h2.encoder.header_table_size > MAX_TABLE:
            self._h2.encoder.header_table_size = MAX_TABLE
        return events

    async def flush(self) -> None:
        """Sends what h2 has queued; waits while the other side is slow."""
        data = self._h2.data_to_send()
        if data:
            await self._stream.write(data)

    async def acknowledge(self, stream_id: int, size: int) -> None:
        """Lets the sender send `size` more bytes, once that many have been passed on."""
        if size and self._gone is None:
            try:
                self._h2.acknowledge_received_data(size, stream_id)
            except h2.exceptions.ProtocolError:
                return  # the connection is over
            await self.flush()

    async def send_body(self, stream_id: int, body: Body, *, trailers: bool) -> None:
        """Sends `body`, with or without its trailers, and ends the stream, as fast as flow control allows."""
        while piece := await body.read():
            view = memoryview(piece)
            while view:
                room = await self._wait_for_room(stream_id)
                self._h2.send_data(stream_id, bytes(view[:room]))
                view = view[room:]
                await self.flush()
        if trailers and body.trailers:
            self._h2.send_headers(stream_id, http2_fields(list(body.trailers)), end_stream=True)
        else:
            self._h2.end_stream(stream_id)
        await self.flush()

    async def _wait_for_room(self, stream_id: int) -> int:
        while True:
            if self._gone is not None:
                raise self._gone
            room = min(self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size)
            if room > 0:
                return room
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room.append(waiter)
        await waiter

    def wake(self) -> None:
        """Wakes waiters after a change of windows, settings or streams."""
        waiting, self._room = self._room, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def reset(self, stream_id: int, code: ErrorCodes) -> None:
        """Resets one stream; the others continue."""
        try:
            self._h2.reset_stream(stream_id, code)
            await self.flush()
        except (h2.exceptions.ProtocolError, OSError):
            pass  # it is over already


def declared_length(pairs: list[Pair]) -> int | None:
    """The value of content-length. h2 has checked that it is a number, and will check that it is true."""
    return next((int(value) for name, value in pairs if name == b"content-length"), None)
