"""A command running inside: its line to the guest, and the host's ends of its input and output.

Every command has a line of its own (`guest/protocol.md`, "Lines"), so nothing is shared between two commands and no
thread is needed to sort replies: whoever waits for a command waits on that command's descriptors.
"""

from __future__ import annotations

import errno
import os
import select
import time

from sandbox.errors import CommandError, GuestError, Message, SandboxClosed
from sandbox.guest import frames
from sandbox.result import Chunk, ExecResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Iterator
    from typing import Self

PIECE = 2**17


class Process:
    """One running command. Closing it kills the command if it still runs.

    `stdin`, `stdout`, `stderr` are the host's ends of its pipes, `terminal` the master of its pty; None where none is.
    """

    def __init__(self, line: _socket.socket, name: str) -> None:
        self.line = line
        self.name = name
        self.explain: Callable[[CommandError], CommandError] | None = None  # and on why it never ran
        self.judge: Callable[[ExecResult], None] | None = None  # the sandbox's last word on the result
        self.stopped: Callable[[], object] | None = None  # called when Ctrl-Z stopped it; it is to be continued
        self.pid: int | None = None
        self.stdin: int | None = None
        self.stdout: int | None = None
        self.stderr: int | None = None
        self.terminal: int | None = None
        self.given = b""
        self.result: ExecResult | None = None

    # -- what the guest says

    def wait_started(self) -> None:
        """Until it runs. Raises CommandError when it never will."""
        while self.pid is None and self.result is None:
            self.hear()

    def hear(self) -> None:
        """Takes in one frame from the line. Raises CommandError, GuestError or SandboxClosed."""
        message, fds = frames.receive(self.line)
        kind = message["t"]
        if kind == "started":
            self.pid = whole(message, "pid")
            if fds:
                self.terminal = fds.pop()
            frames.close_all(fds)
        elif kind == "exit":
            frames.close_all(fds)
            self.result = _result(message)
            if self.judge is not None:
                self.judge(self.result)
        elif kind == "stopped":
            frames.close_all(fds)
            (self.stopped or self.resume)()
        elif kind == "failed":
            frames.close_all(fds)
            problem = never_ran(self.name, message)
            raise problem if self.explain is None else self.explain(problem)
        else:
            frames.close_all(fds)
            raise GuestError("the guest said {kind!r} about a command", kind=kind)

    # -- what the host asks

    def signal(self, number: int) -> None:
        """Sends a signal to the command's process group; nothing happens when it has ended."""
        self._tell({"t": "signal", "sig": number})

    def resume(self) -> None:
        """Has a command that was stopped go on."""
        self.signal(18)  # SIGCONT, as Linux numbers it everywhere we run

    def kill(self) -> None:
        """Kills every process of the command's session."""
        self._tell({"t": "cancel"})

    def resize(self, rows: int, columns: int) -> None:
        """Tells the command's terminal its new size."""
        self._tell({"t": "resize", "rows": rows, "cols": columns})

    def _tell(self, message: dict[str, object]) -> None:
        try:
            frames.send(self.line, message)
        except SandboxClosed:
            pass  # it ended first: what was asked no longer matters

    # -- input and output

    def chunks(self) -> Iterator[Chunk]:
        """Feeds what it was given to its stdin and yields its output as it comes, until it has ended.

        Ends when the command itself ends, after what it wrote has been read: something it left in the background and
        that still holds the pipe open is not waited for.
        """
        poll = select.poll()
        streams = {fd: name for fd, name in ((self.stdout, "stdout"), (self.stderr, "stderr")) if fd is not None}
        for fd in (self.line.fileno(), *streams):
            poll.register(fd, select.POLLIN)
        left = memoryview(self.given)
        if self.stdin is not None:
            os.set_blocking(self.stdin, False)
            poll.register(self.stdin, select.POLLOUT)
        while self.result is None:
            for fd, _ in poll.poll():
                if fd == self.stdin:
                    left = self._feed(poll, left)
                elif fd in streams:
                    data = os.read(fd, PIECE)
                    if data:
                        yield Chunk(streams[fd], data)
                    else:
                        poll.unregister(fd)
                        del streams[fd]
                else:
                    self.hear()
        for fd, name in streams.items():
            os.set_blocking(fd, False)
            yield from (Chunk(name, data) for data in _rest(fd))

    def _feed(self, poll: select.poll, left: memoryview) -> memoryview:
        assert self.stdin is not None
        try:
            left = left[os.write(self.stdin, left[:PIECE]) if left else 0 :]
        except BlockingIOError:
            return left
        except BrokenPipeError:
            left = left[:0]  # the command does not read on: its choice
        if not left:
            poll.unregister(self.stdin)
            self.close_stdin()
        return left

    def wait(self, timeout: float | None = None) -> ExecResult:
        """Until it has ended; its output is the caller's to read. Raises TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        poll = select.poll()
        poll.register(self.line.fileno(), select.POLLIN)
        while self.result is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            if not poll.poll(left):
                raise TimeoutError(f"{self.name} still runs")
            self.hear()
        return self.result

    def write(self, data: bytes) -> None:
        """Gives the command all of `data` as input. Raises BrokenPipeError when it reads no more."""
        target = self.terminal if self.terminal is not None else self.stdin
        if target is None:
            raise ValueError("this command has no input")
        left = memoryview(data)
        while left:
            left = left[os.write(target, left) :]

    def close_stdin(self) -> None:
        """Ends the command's input."""
        if self.stdin is not None:
            os.close(self.stdin)
            self.stdin = None

    def read(self, size: int = PIECE, stream: str = "stdout") -> bytes:
        """Output as soon as there is some; empty at its end. With a pty there is one stream, whatever is asked."""
        source = self.terminal if self.terminal is not None else getattr(self, stream)
        if source is None:
            raise ValueError(f"this command's {stream} is not a pipe of ours")
        try:
            return os.read(source, size)
        except OSError as problem:
            if problem.errno == errno.EIO and self.terminal is not None:
                return b""  # how a terminal says that nobody is on the other side any more
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives back every descriptor; the guest kills what still runs when the line closes."""
        self.line.close()
        for name in ("stdin", "stdout", "stderr", "terminal"):
            fd = getattr(self, name)
            if fd is not None:
                setattr(self, name, None)
                os.close(fd)


_TIMED_OUT = Message("the command ran longer than its timeout")


def whole(message: dict[str, object], key: str) -> int:
    """A whole number that the guest must have sent."""
    value = message.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise GuestError("the guest sent no number for {key!r}", key=key)
    return value


def never_ran(name: str, message: dict[str, object]) -> CommandError:
    """The guest's `failed`, in words."""
    number, step = whole(message, "errno"), message.get("step")
    said = os.strerror(number)
    if step == "chdir":
        return CommandError("cannot enter the working directory inside the sandbox: {said}", said=said, exit_code=126)
    if number == errno.ENOENT:
        return CommandError("{name}: no such command inside the sandbox", name=name, exit_code=127)
    if step == "exec":
        return CommandError("{name}: {reason}", name=name, reason=said, exit_code=126)
    return CommandError("{name}: {reason} (at {step})", name=name, reason=said, step=step, exit_code=126)


def _rest(fd: int) -> Iterator[bytes]:
    try:
        while data := os.read(fd, PIECE):
            yield data
    except BlockingIOError:
        return


def _result(message: dict[str, object]) -> ExecResult:
    signal = whole(message, "signal") if "signal" in message else None
    timed_out = message.get("timed_out") is True
    return ExecResult(
        exit_code=whole(message, "code") if signal is None else 128 + signal,
        signal=signal,
        timed_out=timed_out,
        duration_ms=whole(message, "wall_us") // 1000,
        user_ms=whole(message, "user_us") // 1000,
        system_ms=whole(message, "sys_us") // 1000,
        max_rss_kb=whole(message, "maxrss_kb"),
        note=_TIMED_OUT if timed_out else "",
    )
