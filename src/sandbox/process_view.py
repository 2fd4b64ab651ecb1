"""The reading half of a process whose output arrives in pieces: one `read`, `chunks` and `wait` for all of them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from sandbox.errors import InvalidArgument
from sandbox.result import OUTPUT_LIMIT, Chunk, ExecResult, Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterator
    from typing import Self
else:
    from _collections import deque  # `collections` itself takes a millisecond to import

PIECE = 2**17


class ProcessView(ABC):
    """A command seen from elsewhere. A subclass defines `_receive`, by which pieces arrive, and the rest of a process.

    One thread reads at a time; others may write, signal and close meanwhile.
    """

    pid: int | None = None
    result: ExecResult | None = None

    kept = False  # whether it runs on when it is closed

    def __init__(self, tty: bool = False) -> None:
        self.tty = tty
        self._unread: deque[Chunk] = deque()  # pieces that came while another stream was being read
        self._output: Output | None = None  # what `wait` has collected so far

    @abstractmethod
    def _receive(self, timeout: float | None, stream: str | None = None) -> Chunk | None:
        """The next piece; None at the end, when `result` is set. Raises TimeoutError, and why the command failed.

        If `stream` is given, only that one is wanted: a subclass that can tell streams apart returns no other, and None
        at the end of that one.
        """

    def _taken(self, size: int) -> None:  # noqa: B027 - most subclasses do not need it
        """The reader has consumed `size` bytes."""

    def _next(self, timeout: float | None = None) -> Chunk | None:
        if self._unread:
            chunk = self._unread.popleft()
        elif (received := self._receive(timeout)) is None:
            return None
        else:
            chunk = received
        self._taken(len(chunk.data))
        return chunk

    def chunks(self) -> Iterator[Chunk]:
        """Yields output as it comes, until the command has ended; `result` is set afterwards. Raises SandboxClosed."""
        while (chunk := self._next()) is not None:
            yield chunk

    def read(self, size: int = PIECE, stream: str = "stdout") -> bytes:
        """Returns at most `size` bytes as soon as there are some; b"" at the end of the output.

        On a terminal there is one stream, whatever is asked for. Raises InvalidArgument for a stream that is neither
        "stdout" nor "stderr", SandboxClosed when the sandbox ended meanwhile.
        """
        if stream not in ("stdout", "stderr"):
            raise InvalidArgument('stream is "stdout" or "stderr", not {stream!r}', stream=stream)
        wanted = "stdout" if self.tty else stream
        if (chunk := self._first(wanted)) is None:
            return b""
        data, rest = chunk.data[:size], chunk.data[size:]
        if rest:
            self._unread.appendleft(Chunk(wanted, rest))
        self._taken(len(data))
        return data

    def _first(self, stream: str) -> Chunk | None:
        for chunk in self._unread:
            if chunk.stream == stream:
                self._unread.remove(chunk)
                return chunk
        while (received := self._receive(None, stream)) is not None:
            if received.stream == stream:
                return received
            self._unread.append(received)
        return None

    def wait(self, timeout: float | None = None) -> ExecResult:
        """Waits until the command has ended. The result has what it printed and nobody has read, up to 10 MiB of each.

        Raises TimeoutError after `timeout` seconds; the command runs on, and a later `wait` has all of its output.
        """
        until = None if timeout is None else time.monotonic() + timeout
        if self._output is None:
            self._output = Output(OUTPUT_LIMIT)
        while (chunk := self._next(None if until is None else max(0.0, until - time.monotonic()))) is not None:
            self._output.add(chunk)
        assert self.result is not None
        return self._output.into(self.result)

    @abstractmethod
    def close(self) -> None:
        """Gives the command up."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
