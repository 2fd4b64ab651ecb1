"""A running command for asyncio programs: the methods of `Process`, as coroutines.

A thread of the sandbox's own reads the command's output, at most `WINDOW` bytes ahead of the program. A coroutine that
is cancelled while it waits loses no output.
"""

from __future__ import annotations

import asyncio
from collections import deque
from threading import Condition
from typing import TYPE_CHECKING

from sandbox.errors import InvalidArgument
from sandbox.process_view import PIECE, ProcessView
from sandbox.result import OUTPUT_LIMIT, Chunk, ExecResult, Output

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import Any, Self

    from sandbox.protocols import Process

WINDOW = 2**19


class AsyncProcess:
    """A running command. One task reads its output at a time; others may write, signal and close meanwhile."""

    def __init__(self, process: Process, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        """`in_thread` runs a function that may block; made by `AsyncSandbox`."""
        self._process = process
        self._in_thread = in_thread
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[Chunk] = deque()
        self._changed = asyncio.Event()
        self._ended = False
        self._problem: BaseException | None = None
        self._ahead = _Ahead()
        self._output: Output | None = None
        self._closing: asyncio.Future[None] | None = None
        self._pump = asyncio.ensure_future(in_thread(self._read_all))

    @property
    def pid(self) -> int | None:
        """Its process id inside the sandbox."""
        return self._process.pid

    @property
    def result(self) -> ExecResult | None:
        """How it ended; None until all of its output has been read."""
        return self._process.result if self._ended and not self._arrived else None

    # -- output

    def _read_all(self) -> None:
        """In a thread, until the command has ended."""
        problem: BaseException | None = None
        try:
            for chunk in self._process.chunks():
                if self._ahead.wait(len(chunk.data)):
                    self._loop.call_soon_threadsafe(self._put, chunk)
        except BaseException as raised:  # noqa: BLE001 - it is raised again where somebody waits
            problem = raised
        try:
            self._loop.call_soon_threadsafe(self._end, problem)
        except RuntimeError:
            pass  # the loop has ended

    def _put(self, chunk: Chunk) -> None:
        self._arrived.append(chunk)
        self._changed.set()

    def _end(self, problem: BaseException | None) -> None:
        self._ended, self._problem = True, problem
        self._changed.set()

    async def _next(self, stream: str | None = None) -> Chunk | None:
        while True:
            for chunk in self._arrived:
                if stream is None or chunk.stream == stream:
                    self._arrived.remove(chunk)
                    return chunk
            if self._ended:
                if self._problem is not None:
                    raise self._problem
                return None
            self._changed.clear()
            await self._changed.wait()

    async def chunks(self) -> AsyncIterator[Chunk]:
        """Yields output as it comes, until the command has ended; `result` is set afterwards. Raises SandboxClosed."""
        while (chunk := await self._next()) is not None:
            self._ahead.taken(len(chunk.data))
            yield chunk

    async def read(self, size: int = PIECE, stream: str = "stdout") -> bytes:
        """Returns at most `size` bytes of "stdout" or "stderr" as soon as there are some; b"" at the end of the output.

        On a terminal there is one stream, whatever is asked for. Raises InvalidArgument, SandboxClosed.
        """
        if stream not in ("stdout", "stderr"):
            raise InvalidArgument('stream is "stdout" or "stderr", not {stream!r}', stream=stream)
        chunk = await self._next("stdout" if self._process.tty else stream)
        if chunk is None:
            return b""
        data, rest = chunk.data[:size], chunk.data[size:]
        if rest:
            self._arrived.appendleft(Chunk(chunk.stream, rest))
        self._ahead.taken(len(data))
        return data

    async def wait(self, timeout: float | None = None) -> ExecResult:
        """Waits until the command has ended. The result has what it printed and nobody has read, up to 10 MiB of each.

        Raises TimeoutError after `timeout` seconds; the command runs on, and a later `wait` has all of its output.
        """
        if self._output is None:
            self._output = Output(OUTPUT_LIMIT)
        async with asyncio.timeout(timeout):
            async for chunk in self.chunks():
                self._output.add(chunk)
        assert self._process.result is not None
        return self._output.into(self._process.result)

    # -- the rest

    async def write(self, data: bytes) -> None:
        """Gives the command all of `data` as input. Raises BrokenPipeError when it reads no more."""
        await self._in_thread(lambda: self._process.write(data))

    async def close_stdin(self) -> None:
        """Ends the command's input; on a terminal by typing Ctrl-D."""
        await self._in_thread(self._process.close_stdin)

    async def signal(self, number: int) -> None:
        """Sends a signal to the command's process group; nothing happens when it has ended."""
        await self._in_thread(lambda: self._process.signal(number))

    async def kill(self) -> None:
        """Kills every process of the command; nothing happens when it has ended."""
        await self._in_thread(self._process.kill)

    async def resize(self, rows: int, columns: int) -> None:
        """Tells the command's terminal its new size."""
        await self._in_thread(lambda: self._process.resize(rows, columns))

    async def close(self) -> None:
        """Gives the command up: it is killed, unless it is kept under a name. Idempotent."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._ahead.abandon()
        if isinstance(self._process, ProcessView) and self._process.kept:
            self._process.close()  # this wakes the reader; the command runs on
        else:
            self._process.kill()
        await asyncio.wait([self._pump])
        self._process.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Ahead:
    """How far the reading thread may be ahead of the program."""

    def __init__(self) -> None:
        self._bytes = 0
        self._abandoned = False
        self._changed = Condition()

    def wait(self, size: int) -> bool:
        """Waits until there is room for a piece of that size. Returns False when nobody will read it."""
        with self._changed:
            while self._bytes >= WINDOW and not self._abandoned:
                self._changed.wait()
            self._bytes += size
            return not self._abandoned

    def taken(self, size: int) -> None:
        """The program has read `size` bytes."""
        with self._changed:
            self._bytes -= size
            self._changed.notify()

    def abandon(self) -> None:
        """Nobody will read any more."""
        with self._changed:
            self._abandoned = True
            self._changed.notify()
