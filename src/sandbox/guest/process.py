"""A command running inside: its line to the guest, and the host's ends of its input and output.

Every command has a line of its own (`guest/protocol.md`, "Lines"), so two commands share nothing and no thread is
needed to sort replies: whoever waits for a command waits on that command's descriptors. Where descriptors cannot
cross, `bridge.py` holds their other ends; a `Process` cannot tell the difference.
"""

from __future__ import annotations

import errno
import os
import select
import time
from _thread import allocate_lock as Lock

from sandbox.errors import InvalidArgument, SandboxClosed
from sandbox.guest.command_channel import CommandChannel
from sandbox.guest.unread_output import UnreadOutput
from sandbox.process_view import PIECE
from sandbox.result import OUTPUT_LIMIT, Chunk

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Iterator
    from typing import Self

    from sandbox.result import ExecResult


class Process(CommandChannel):
    """One running command. Closing it kills the command if it still runs.

    `stdin`, `stdout` and `stderr` are the host's ends of its pipes, `terminal` the host's side of its pty; each
    may be None. A program with a poll loop of its own may use them, with `fileno()` and `advance()`.
    """

    def __init__(self, line: _socket.socket, name: str, tty: bool = False) -> None:
        super().__init__(line, name)
        self.tty = tty
        self._closing = Lock()
        self.stdin: int | None = None
        self.stdout: int | None = None
        self.stderr: int | None = None
        self._given: memoryview | None = None
        self._kept = {"stdout": UnreadOutput(OUTPUT_LIMIT), "stderr": UnreadOutput(OUTPUT_LIMIT)}

    def _give(self, data: bytes) -> None:
        """Sets all of its input. `chunks` and `wait` feed it as the command reads, and then close stdin."""
        self._given = memoryview(data)

    def write(self, data: bytes) -> None:
        """Gives the command all of `data` as input. Raises BrokenPipeError when it no longer reads."""
        self.write_within(data, None)

    def write_within(self, data: bytes, timeout: float | None) -> None:
        """The same, but raises TimeoutError after `timeout` seconds; part of `data` may have been written then."""
        with self._closing:
            target = self.terminal if self.terminal is not None else self.stdin
            if target is None:
                raise BrokenPipeError(errno.EPIPE, "this command reads no input, or no more")
            target = os.dup(target)  # closing the command meanwhile would free the number for another file
        try:
            left = memoryview(data)
            until = None if timeout is None else time.monotonic() + timeout
            while left:
                left = left[os.write(target, left if until is None else _room(target, left, until)) :]
        except OSError as problem:
            if problem.errno == errno.EIO:  # how a terminal says that the other side is gone
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None
            raise
        finally:
            os.close(target)

    def resize(self, rows: int, columns: int) -> None:
        """Tells the command's terminal its new size. It takes effect before any input written later."""
        import fcntl
        import termios
        from struct import pack

        with self._closing:
            if self.terminal is not None and os.isatty(self.terminal):
                # Through the guest it could arrive after later input, which goes straight to the terminal.
                size = pack("4H", max(0, min(rows, 65535)), max(0, min(columns, 65535)), 0, 0)
                fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, size)
                return
        super().resize(rows, columns)

    def close_stdin(self) -> None:
        """Ends the command's input; on a terminal by typing Ctrl-D. Does nothing when the command has ended."""
        if self.terminal is not None:
            try:
                self.write(b"\x04")
            except BrokenPipeError:
                pass
            return
        with self._closing:
            if self.stdin is not None:
                os.close(self.stdin)
                self.stdin = None

    def read(self, size: int = PIECE, stream: str = "stdout") -> bytes:
        """Returns output as soon as there is some, b"" at its end. A terminal has one stream, whatever `stream` says.

        Raises InvalidArgument when that stream is not one of our pipes.
        """
        if stream not in ("stdout", "stderr"):
            raise InvalidArgument('stream is "stdout" or "stderr", not {stream!r}', stream=stream)
        if self.terminal is not None:
            stream = "stdout"
        kept, source = self._kept[stream], self._outputs().get(stream)
        with kept.lock:  # `wait` in another thread leaves the stream to us
            data = kept.take(size)
            if not data and source is None:
                raise InvalidArgument("this command's {stream} is not a pipe", stream=stream)
            return data or self._read(source, size)  # type: ignore[arg-type]

    def chunks(self) -> Iterator[Chunk]:
        """Yields output as it comes, until the command has ended; then `result` is set. A terminal's output is all
        `stdout`.

        Ends when the command itself ends and what it wrote has been read. It does not wait for background processes
        that still hold the pipe open.
        """
        for name, kept in self._kept.items():
            while data := kept.take(PIECE):
                yield Chunk(name, data)
        yield from self._until_the_end(None)

    def wait(self, timeout: float | None = None) -> ExecResult:
        """Waits until the command has ended, at most `timeout` seconds. Returns its result.

        Output that nobody reads meanwhile is collected, so the command never blocks on a full pipe. Up to 10 MiB of
        each stream is kept; the rest is cut, with a mark. The result has it, and `read` returns it too. Raises
        TimeoutError, and the command continues. Raises CommandError when it could not be started.
        """
        for _ in self._until_the_end(None if timeout is None else time.monotonic() + timeout, keep=True):
            pass
        assert self.result is not None
        out, err = self._kept["stdout"], self._kept["stderr"]
        if out or err:
            self.result.stdout_bytes, self.result.stderr_bytes = out.value(), err.value()
            self.result.truncated = out.truncated or err.truncated
        return self.result

    def _outputs(self) -> dict[str, int]:
        if self.terminal is not None:
            return {"stdout": self.terminal}
        return {name: fd for name, fd in (("stdout", self.stdout), ("stderr", self.stderr)) if fd is not None}

    def _read(self, source: int, size: int) -> bytes:
        try:
            return os.read(source, size)
        except OSError as problem:
            if problem.errno == errno.EIO and source == self.terminal:
                return b""  # how a terminal says that the other side is gone
            raise

    def _until_the_end(self, deadline: float | None, keep: bool = False) -> Iterator[Chunk]:
        """Feeds the input and yields the output until the command has ended. `keep` it as well. Raises TimeoutError."""
        poll = select.poll()
        if self.result is None:
            poll.register(self._channel.fileno(), select.POLLIN)
        while self.pid is None and self.result is None:  # only then do we know whether it has a terminal
            self._poll(poll, deadline)
            self.advance()
        streams = {fd: name for name, fd in self._outputs().items()}
        for fd in streams:
            poll.register(fd, select.POLLIN)
        if self.stdin is not None and self._given is not None:
            os.set_blocking(self.stdin, False)
            poll.register(self.stdin, select.POLLOUT)
        while self.result is None:
            for fd, _ in self._poll(poll, deadline):
                if fd == self._channel.fileno():
                    self.advance()
                elif fd in streams:
                    data = self._piece(fd, streams[fd], keep)
                    if data:
                        yield Chunk(streams[fd], data)
                    elif data is not None:
                        poll.unregister(fd)
                        del streams[fd]
                else:
                    self._feed(poll)
        for fd, name in streams.items():
            left = _MOST_LEFT  # what it left behind may go on writing for ever
            while left > 0 and _ready(fd) and (data := self._piece(fd, name, keep)):
                left -= len(data)
                yield Chunk(name, data)

    def _poll(self, poll: select.poll, deadline: float | None) -> list[tuple[int, int]]:
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        ready = poll.poll(left)
        if self._channel.fileno() < 0:
            raise SandboxClosed("the command was closed")
        if not ready or (left == 0 and self._channel.fileno() not in dict(ready)):
            raise TimeoutError(f"{self.name} still runs")
        return ready

    def _piece(self, fd: int, name: str, keep: bool) -> bytes | None:
        """Output that can be read now; None when another thread is reading the stream."""
        kept = self._kept[name]
        if not kept.lock.acquire(blocking=False):
            return None
        try:
            data = self._read(fd, PIECE)
            if keep:
                kept.add(data)
            return data
        finally:
            kept.lock.release()

    def _feed(self, poll: select.poll) -> None:
        assert self.stdin is not None
        assert self._given is not None
        try:
            self._given = self._given[os.write(self.stdin, self._given[:PIECE]) if self._given else 0 :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._given = self._given[:0]  # the command has stopped reading, which is no error
        if not self._given:
            poll.unregister(self.stdin)
            self.close_stdin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes every descriptor; the guest kills what still runs when the line closes."""
        try:
            # Another thread may be polling the line: that would keep it open, and the command alive.
            self._channel.shutdown(_BOTH_WAYS)
        except OSError:
            pass  # it is closed already, or the guest has gone
        self._channel.close()
        if self._gone is not None:
            self._gone()
        with self._closing:
            for name in ("stdin", "stdout", "stderr", "terminal"):
                fd = getattr(self, name)
                if fd is not None:
                    setattr(self, name, None)
                    os.close(fd)


_MOST_LEFT = 2**21  # bytes of a command that has ended: the largest pipe (1 MiB), and what `bridge.py` holds
_BOTH_WAYS = 2  # SHUT_RDWR: `socket` itself is not loaded here


def _room(fd: int, data: memoryview, until: float) -> memoryview:
    """Waits for room, and returns as much of `data` as can be written without blocking. Raises TimeoutError."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
        raise TimeoutError
    return data[: select.PIPE_BUF]


def _ready(fd: int) -> bool:
    """Whether a read would return at once, with data or the end."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
