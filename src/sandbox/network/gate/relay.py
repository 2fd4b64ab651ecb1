"""Moves bytes between two sockets until both sides are done: how the gate passes a connection.

A side that stops reading stops the other from sending, because nothing is read before it can be written. Small messages
use recv and send. A stream that fills the buffer goes through a pipe with splice(2), so that its bytes never enter user
space.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 65536
_PIPE = 1 << 17  # as fast as larger ones, and a user's share of pipe memory holds more of them
_TURNS = 8  # pieces moved before other connections get their turn
_SPLICE = getattr(os, "SPLICE_F_MOVE", 0) | getattr(os, "SPLICE_F_NONBLOCK", 0)
_F_SETPIPE_SZ = 1031


class Relay:
    """One connection. `run()` returns when both directions have ended, or resets both after an error."""

    def __init__(self, client: socket.socket, upstream: socket.socket) -> None:
        self.client = client
        self.upstream = upstream
        self.sent = _Flow(self, client, upstream)
        self.received = _Flow(self, upstream, client)
        self.last_moved = 0.0
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self.tenants = self.sent
        """The direction in which the tenant speaks."""
        self._winding_up = False

    async def run(self) -> bool:
        """Moves bytes until the end. False when a side broke off; the other is then reset too."""
        self.moved()
        self.sent.start(self._loop)
        self.received.start(self._loop)
        orderly = False
        try:
            await self._over
            orderly = True
        except OSError:
            pass
        finally:
            for flow in (self.sent, self.received):
                flow.stop()
            if not orderly and not self._winding_up:  # a reset would discard what is still on its way
                reset(self.client)
                reset(self.upstream)
        return orderly

    def moved(self) -> None:
        """Bytes have just passed."""
        self.last_moved = self._loop.time()

    def ended(self, problem: OSError | None = None) -> None:
        """A direction has ended, or failed."""
        if self._over.done():
            return
        if self._winding_up:
            if self.tenants.finished or self.tenants.broken:
                self._over.set_result(None)
        elif problem is not None:
            self._over.set_exception(problem)
        elif self.sent.finished and self.received.finished:
            self._over.set_result(None)

    def wind_up(self) -> None:
        """The tenants have ended: delivers what they sent before, then ends."""
        self._winding_up = True
        self.ended()

    def abort(self) -> None:
        """Ends it now, as a reset."""
        self.ended(ConnectionAbortedError("closed by the gate"))


class _Flow:
    """One direction: reads `source` while `sink` accepts the bytes, then waits for `sink`."""

    def __init__(self, relay: Relay, source: socket.socket, sink: socket.socket) -> None:
        self.total = 0
        self.finished = False
        self.broken = False
        self._relay = relay
        self._source = source
        self._sink = sink
        self._left = b""  # read but not yet written
        self._pipe: tuple[int, int] | None = None
        self._in_pipe = 0
        self._move: Callable[[], bool] = self._copy

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        # By number: for a socket object, asyncio formats a long message for an exception that it catches itself.
        self._loop, self._in, self._out = loop, self._source.fileno(), self._sink.fileno()
        self._loop.add_reader(self._in, self._readable)

    def stop(self) -> None:
        self._loop.remove_reader(self._in)
        self._loop.remove_writer(self._out)
        if self._pipe is not None:
            os.close(self._pipe[0])
            os.close(self._pipe[1])
            self._pipe = None

    def _readable(self) -> None:
        try:
            for _ in range(_TURNS):
                if not self._move():
                    break
        except BlockingIOError:
            pass
        except OSError as problem:
            self._break(problem)
        self._relay.moved()

    def _writable(self) -> None:
        try:
            if self._drain():
                self._loop.remove_writer(self._out)
                self._loop.add_reader(self._in, self._readable)
        except OSError as problem:
            self._break(problem)
        self._relay.moved()

    def _break(self, problem: OSError) -> None:
        self.broken = True
        self._loop.remove_reader(self._in)
        self._loop.remove_writer(self._out)
        self._relay.ended(problem)

    def _wait_for_sink(self) -> bool:
        self._loop.remove_reader(self._in)
        self._loop.add_writer(self._out, self._writable)
        return False

    def _end(self) -> bool:
        self._loop.remove_reader(self._in)
        self.finished = True
        try:
            self._sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it is gone; its own direction notices that
        self._relay.ended()
        return False

    def _copy(self) -> bool:
        """Moves one piece through memory. True when another may follow at once."""
        data = self._source.recv(CHUNK)
        if not data:
            return self._end()
        self.total += len(data)
        self._left = data
        if not self._drain():
            return self._wait_for_sink()
        if len(data) == CHUNK and _SPLICE:
            self._open_pipe()
            return True
        return False

    def _splice(self) -> bool:
        """Moves one piece through the pipe, in the kernel."""
        if sys.platform != "linux":
            return False  # never: no pipe was opened
        assert self._pipe is not None
        size = os.splice(self._in, self._pipe[1], _PIPE, flags=_SPLICE)
        if size == 0:
            return self._end()
        self.total += size
        self._in_pipe = size
        return True if self._drain() else self._wait_for_sink()

    def _drain(self) -> bool:
        """Writes what was read. False when the sink accepts no more for now."""
        try:
            while self._left:
                self._left = self._left[self._sink.send(self._left) :]
            if sys.platform == "linux":
                while self._in_pipe and self._pipe is not None:
                    self._in_pipe -= os.splice(self._pipe[0], self._out, self._in_pipe, flags=_SPLICE)
        except BlockingIOError:
            return False
        return True

    def _open_pipe(self) -> None:
        if sys.platform != "linux":
            return
        try:
            self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # no descriptors to spare: go on copying
        try:
            import fcntl

            fcntl.fcntl(self._pipe[1], _F_SETPIPE_SZ, _PIPE)
        except OSError:
            pass  # beyond the user's share of pipe memory: keep the default of 64 KiB
        self._move = self._splice


async def either_readable(one: socket.socket, other: socket.socket) -> None:
    """Waits until one of the two is readable."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    numbers = one.fileno(), other.fileno()
    for number in numbers:
        loop.add_reader(number, ready.set)
    try:
        await ready.wait()
    finally:
        for number in numbers:
            loop.remove_reader(number)


def reset(sock: socket.socket) -> None:
    """Closes with RST, so that the other side sees an error at once."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    sock.close()
