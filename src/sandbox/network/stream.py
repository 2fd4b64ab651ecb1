"""A socket on the event loop, with back-pressure in both directions.

asyncio's StreamReader and StreamWriter do the same with three times the work per message, and the gate's speed depends
mostly on the number of Python calls between two sockets.
"""

from __future__ import annotations

import asyncio
import socket
from time import monotonic
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

# How far one side may read ahead of the other. Small enough for 500 connections, large enough for throughput.
HIGH_WATER = 256 * 1024
MOST_PIECES = 256  # a piece of one byte costs fifty bytes of memory
# Seconds that one connection may keep the event loop. What is read may be a hundred thousand tiny frames, and reading
# never waits while there is more.
TURN = 0.01


class Turns:
    """Lets the other connections in when one has had its turn."""

    def __init__(self) -> None:
        self._since = monotonic()

    def begin(self) -> None:
        """The event loop has just been elsewhere."""
        self._since = monotonic()

    async def end(self) -> None:
        """Call it between two pieces of work."""
        if monotonic() - self._since > TURN:
            await asyncio.sleep(0)
            self._since = monotonic()


class ByteStream(Protocol):
    """What HTTP runs over: a socket, or TLS on one."""

    @property
    def ended(self) -> bool:
        """Whether the other side has closed; what it sent before can still be read."""

    async def read(self) -> bytes:
        """The next bytes, or b"" at the end. Raises OSError when the connection broke."""

    async def write(self, data: bytes) -> None:
        """Sends `data`; waits while the other side is slow. Raises OSError when it has gone."""

    def close(self) -> None:
        """Ends both directions. Idempotent."""

    def abort(self) -> None:
        """Closes with an error, so that the other side does not mistake what it has for the whole."""


class Stream(asyncio.Protocol):
    """A connected socket."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self.turns = Turns()
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._reading_paused = False
        self._eof = False
        self._problem: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writers: list[asyncio.Future[None]] = []
        self._writing_paused = False
        # Called once, when the other side has ended its direction or the whole connection.
        self.when_ended: Callable[[], object] | None = None

    @classmethod
    async def of(cls, sock: socket.socket) -> Stream:
        """Takes over a connected, non-blocking socket; closes it when that fails."""
        try:
            # asyncio sets this only for sockets created with an explicit protocol number. Without it, a response in
            # two writes waits 40 ms for the other side's delayed acknowledgement.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _, stream = await asyncio.get_running_loop().connect_accepted_socket(cls, sock)
        except BaseException:
            sock.close()
            raise
        return stream

    @property
    def ended(self) -> bool:
        return self._eof

    async def read(self) -> bytes:
        while not self._chunks:
            if self._eof:
                if self._problem is not None:
                    raise self._problem
                return b""
            waiter = self._reader = asyncio.get_running_loop().create_future()
            try:
                await waiter
            finally:
                if self._reader is waiter:  # unless this one was cancelled and another took its place
                    self._reader = None
            self.turns.begin()
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._buffered = 0
        if self._reading_paused:
            self._reading_paused = False
            if self._transport is not None:
                self._transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise self._problem or ConnectionResetError("the connection is closed")
        self._transport.write(data)
        if self._writing_paused:
            waiter = asyncio.get_running_loop().create_future()
            self._writers.append(waiter)
            await waiter

    def write_soon(self, data: bytes) -> None:
        """Sends `data` without waiting, if the connection is open: for a final message before `close`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        self.when_ended = None  # only for an end by the other side
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        self.when_ended = None
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=HIGH_WATER)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._buffered += len(data)
        full = self._buffered > HIGH_WATER or len(self._chunks) >= MOST_PIECES
        if full and not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> bool:
        self._eof = True
        self._wake_reader()
        self._tell_ended()
        return True  # half-closed: we may still send

    def connection_lost(self, problem: Exception | None) -> None:
        self._eof = True
        self._problem = problem
        self._transport = None
        self._wake_reader()
        self._wake_writers(problem or ConnectionResetError("the connection is closed"))
        self._tell_ended()

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._wake_writers(None)

    def _tell_ended(self) -> None:
        told, self.when_ended = self.when_ended, None
        if told is not None:
            told()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _wake_writers(self, problem: Exception | None) -> None:
        waiting, self._writers = self._writers, []
        for waiter in waiting:
            if waiter.done():
                continue
            if problem is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(problem)
