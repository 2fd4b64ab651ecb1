"""Copies bytes between our own streams and a running command's, until it ends."""

from __future__ import annotations

import errno
import os
import select
import time

from sandbox import readiness

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.guest.process import Process
    from sandbox.result import ExecResult

PIECE = 2**16
SOON = 0.02  # seconds in which most short commands end
_TIOCSIG = 0x40045436  # `termios` does not have it


class StdioRelay:
    """Copies input to the command without blocking on it (a command that does not read must not keep us from taking its
    output), and output to us as it comes."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._input: tuple[int, int] | None = None
        self._pending = memoryview(b"")
        self._outputs: dict[int, int] = {}
        self._calls: dict[int, Callable[[], object]] = {process.fileno(): process.advance}
        self._typed = b""  # the last key that was passed on
        self.between: Callable[[], object] | None = None  # called after each round of copying
        self.tap: Callable[[bytes], object] | None = None  # sees the output

    def feed(self, source: int, target: int) -> None:
        """Copies `source` into the command's end `target`."""
        os.set_blocking(target, False)
        self._input = (source, target)

    def show(self, source: int, target: int) -> None:
        """Copies the command's `source` to our `target`."""
        self._outputs[source] = target

    def when(self, fd: int, call: Callable[[], object]) -> None:
        """Calls `call` whenever `fd` is readable."""
        self._calls[fd] = call

    @property
    def typing(self) -> bool:
        """Whether a typed line is incomplete, or something typed has not been passed on yet."""
        return bool(self._pending) or self._typed not in (b"", b"\r", b"\n", b"\x03", b"\x04")

    def interrupt(self) -> None:
        """Sends Ctrl-C as if typed for the command. If that makes a signal, it has been sent when this returns."""
        terminal = self._process.terminal
        if terminal is None:
            os.killpg(0, 2)
        elif not _signalled(terminal):
            os.write(terminal, b"\x03")

    def run(self) -> ExecResult:
        """Runs until the command has ended and all its output is copied."""
        if (others := readiness.fileno()) is not None:
            self._first_moment(others)
        while self._process.result is None:
            self._turn(self._waiting().poll())
        for fd in list(self._outputs):
            os.set_blocking(fd, False)
            while self._copy(fd):
                pass
        return self._process.result

    def _first_moment(self, others: int) -> None:
        """Takes the waiting thread's place until another descriptor is ready or the command has run for some time."""
        until = time.monotonic() + SOON
        while self._process.result is None and (left := until - time.monotonic()) > 0:
            poll = self._waiting()
            poll.register(others, select.POLLIN)
            ready = poll.poll(left * 1000)
            if any(fd == others for fd, _ in ready):
                break
            self._turn(ready)
        if self._process.result is None:
            readiness.release()

    def _turn(self, ready: list[tuple[int, int]]) -> None:
        """Copies what can be copied without waiting."""
        for fd, _ in ready:
            if fd in self._calls:
                self._calls[fd]()
            elif fd in self._outputs:
                self._copy(fd)
            elif self._input is not None:
                self._step(*self._input)
        if self.between is not None:
            self.between()

    def flush(self, silence: float) -> None:
        """Copies what the command has written so far, until nothing comes for `silence` seconds."""
        while ready := self._readable(silence):
            for fd in ready:
                self._copy(fd)

    def catch_up(self) -> None:
        """Copies what the command has written until now, one piece of each output."""
        for fd in self._readable(0):
            self._copy(fd)

    def _readable(self, patience: float) -> list[int]:
        poll = select.poll()
        for fd in self._outputs:
            poll.register(fd, select.POLLIN)
        return [fd for fd, _ in poll.poll(patience * 1000)]

    def _waiting(self) -> select.poll:
        poll = select.poll()
        for fd in (*self._calls, *self._outputs):
            poll.register(fd, select.POLLIN)
        if self._input is not None:
            source, target = self._input
            # Either write the pending piece or wait for the next: at most one piece is in memory.
            poll.register(*((target, select.POLLOUT) if self._pending else (source, select.POLLIN)))
        return poll

    def _copy(self, source: int) -> bool:
        """Copies one piece of output. Returns False at its end."""
        try:
            data = os.read(source, PIECE)
        except BlockingIOError:
            return False
        except OSError as problem:
            if problem.errno != errno.EIO:  # a terminal reports this when the other side is closed
                raise
            data = b""
        if self.tap is not None:
            self.tap(data)
        left = memoryview(data)
        while left:
            left = left[os.write(self._outputs[source], left) :]
        if not data:
            del self._outputs[source]
        return bool(data)

    def _step(self, source: int, target: int) -> None:
        """Reads a piece of input, or writes the pending one."""
        if not self._pending:
            self._pending = memoryview(os.read(source, PIECE))
            self._typed = bytes(self._pending[-1:])
        try:
            if self._pending:
                self._pending = self._pending[os.write(target, self._pending) :]
                return
        except BlockingIOError:
            return
        except OSError as problem:
            if problem.errno not in (errno.EPIPE, errno.EIO):
                raise
        # Our input has ended, or the command reads no more.
        self._input = None
        if target == self._process.stdin:
            self._process.close_stdin()


def _signalled(terminal: int) -> bool:
    """Interrupts the terminal's foreground at once, if Ctrl-C does that. The kernel handles a key that is written some
    time later, when the command may have continued."""
    import fcntl
    import sys
    import termios

    if sys.platform != "linux":
        return False
    try:
        mode = termios.tcgetattr(terminal)
        if not mode[3] & termios.ISIG or mode[6][termios.VINTR] != b"\x03":
            return False
        fcntl.ioctl(terminal, _TIOCSIG, 2)
    except (OSError, termios.error):
        return False  # not a pseudo-terminal: it takes only keys
    return True


def in_background(fd: int = 0) -> bool:
    """Whether our input (or `fd`) is a terminal and we are in its background (`… &`, `timeout …`), so that using it
    would stop us."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False  # not a terminal, or not one that could stop us
