"""A command running inside: its line to the guest, and the host's ends of its input and output.

Every command has a line of its own (`guest/protocol.md`, "Lines"), so nothing is shared between two commands and no
thread is needed to sort replies: whoever waits for a command waits on that command's descriptors.
"""

from __future__ import annotations

import errno
import os
import select
import time
from threading import Lock

from sandbox.errors import CommandError, GuestError, SandboxClosed
from sandbox.guest import frames
from sandbox.process_view import PIECE, ProcessView
from sandbox.result import Chunk, ExecResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable


class Process(ProcessView):
    """One running command. Closing it kills the command if it still runs.

    `stdin`, `stdout`, `stderr` are the host's ends of its pipes, `terminal` the master of its pty; None where none is.
    """

    def __init__(self, line: socket.socket, name: str, tty: bool = False) -> None:
        super().__init__(tty)
        self.line = line
        self.name = name
        self.explain: Callable[[CommandError], CommandError] | None = None  # and on why it never ran
        self.runs: Callable[[int], None] | None = None  # called with its pid when it has started
        self.gone: Callable[[], None] | None = None  # called when it is closed
        self.judge: Callable[[ExecResult], None] | None = None  # the sandbox's last word on the result
        self.stopped: Callable[[], object] | None = None  # called when Ctrl-Z stopped it; it is to be continued
        self.stdin: int | None = None
        self.stdout: int | None = None
        self.stderr: int | None = None
        self.terminal: int | None = None
        self.given: memoryview | None = None  # the whole input, if it is known; else the caller writes it
        self._ready: list[int] = []  # descriptors that have something for us
        self._ended: set[int] = set()  # outputs whose end has been read
        self._closing = Lock()

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
            if self.runs is not None:
                self.runs(self.pid)
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
            raise GuestError(f"the guest said {kind!r} about a command")

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

    def _receive(self, timeout: float | None, stream: str | None = None) -> Chunk | None:
        """Feeds what it was given to its stdin meanwhile.

        The end is that of the command itself, after what it wrote has been read: something it left in the background
        that still holds the pipe open is not waited for.
        """
        until = None if timeout is None else time.monotonic() + timeout
        if stream is not None and stream not in self._streams().values():
            return None
        while self.result is None:
            if (chunk := self._step(until, stream)) is not None:
                return chunk
            if stream is not None and stream not in self._streams().values():
                return None
        for fd, name in self._streams().items():
            if stream in (None, name):
                os.set_blocking(fd, False)
                if data := self._read(fd):
                    return Chunk(name, data)
                self._ended.add(fd)
        return None

    def _step(self, until: float | None, stream: str | None) -> Chunk | None:
        """Deals with the next thing that happens. Raises TimeoutError."""
        if not self._ready:
            left = None if until is None else max(0.0, until - time.monotonic()) * 1000
            self._ready = [fd for fd, _ in self._awaited(stream).poll(left)]
            if not self._ready:
                raise TimeoutError(f"{self.name} still runs")
        fd = self._ready.pop(0)
        name = self._streams().get(fd)
        if fd == self.line.fileno():
            self.hear()
        elif fd == self.stdin and self.given is not None:
            self._feed()
        elif name is not None and stream in (None, name):
            if data := self._read(fd):
                return Chunk(name, data)
            self._ended.add(fd)
        return None

    def _streams(self) -> dict[int, str]:
        """The output that is still open."""
        if self.terminal is not None:
            found = {self.terminal: "stdout"}
        else:
            found = {fd: name for fd, name in ((self.stdout, "stdout"), (self.stderr, "stderr")) if fd is not None}
        return {fd: name for fd, name in found.items() if fd not in self._ended}

    def _awaited(self, stream: str | None) -> select.poll:
        poll = select.poll()
        poll.register(self.line.fileno(), select.POLLIN)
        for fd, name in self._streams().items():
            if stream in (None, name):
                poll.register(fd, select.POLLIN)
        if self.given is not None and self.stdin is not None:
            poll.register(self.stdin, select.POLLOUT)
        return poll

    def _read(self, fd: int) -> bytes:
        try:
            return os.read(fd, PIECE)
        except BlockingIOError:
            return b""  # what holds the pipe open is not the command
        except OSError as problem:
            if problem.errno == errno.EIO and fd == self.terminal:
                return b""  # how a terminal says that nobody is on the other side any more
            raise

    def _feed(self) -> None:
        assert self.stdin is not None and self.given is not None
        os.set_blocking(self.stdin, False)
        try:
            self.given = self.given[os.write(self.stdin, self.given[:PIECE]) if self.given else 0 :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.given = self.given[:0]  # the command does not read on: its choice
        if not self.given:
            self.close_stdin()

    def write(self, data: bytes) -> None:
        """Gives the command all of `data` as input. Raises BrokenPipeError when it reads no more."""
        with self._closing:
            target = self.terminal if self.terminal is not None else self.stdin
            if target is None:
                raise BrokenPipeError(errno.EPIPE, "this command reads no input, or no more")
            target = os.dup(target)  # whoever closes the command meanwhile may free the number for another file
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(target, left) :]
        finally:
            os.close(target)

    def close_stdin(self) -> None:
        """Ends the command's input; on a terminal by typing Ctrl-D."""
        if self.terminal is not None:
            self.write(b"\x04")
            return
        with self._closing:
            if self.stdin is not None:
                os.close(self.stdin)
                self.stdin = None

    def close(self) -> None:
        """Gives back every descriptor; the guest kills what still runs when the line closes."""
        self.line.close()
        if self.gone is not None:
            self.gone()
        with self._closing:
            for name in ("stdin", "stdout", "stderr", "terminal"):
                fd = getattr(self, name)
                if fd is not None:
                    setattr(self, name, None)
                    os.close(fd)


def whole(message: dict[str, object], key: str) -> int:
    """A whole number that the guest must have sent."""
    value = message.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise GuestError(f"the guest sent no number for {key!r}")
    return value


def never_ran(name: str, message: dict[str, object]) -> CommandError:
    """The guest's `failed`, in words."""
    number, step = whole(message, "errno"), message.get("step")
    said = os.strerror(number)
    if step == "chdir":
        return CommandError(f"cannot enter the working directory inside the sandbox: {said}", exit_code=126)
    if number == errno.ENOENT:
        return CommandError(f"{name}: no such command inside the sandbox", exit_code=127)
    return CommandError(f"{name}: {said}" + ("" if step == "exec" else f" (at {step})"), exit_code=126)


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
        note="it ran longer than its timeout" if timed_out else "",
    )
