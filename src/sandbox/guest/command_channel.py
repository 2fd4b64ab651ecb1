"""The messages between host and guest about one command, on the command's own channel."""

from __future__ import annotations

import errno
import os

from sandbox.errors import CommandError, GuestError, Message, SandboxClosed
from sandbox.guest import frames
from sandbox.result import ExecResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable


class CommandChannel:
    """The channel of one command: news from the guest, and requests from the host."""

    def __init__(self, channel: _socket.socket, name: str) -> None:
        self._channel = channel
        self.name = name
        self.stopped: Callable[[], object] | None = None  # called when Ctrl-Z stopped it; the callee must continue it
        self.pid: int | None = None
        self.terminal: int | None = None
        self.result: ExecResult | None = None
        self._runs: Callable[[int], None] | None = None
        self._judge: Callable[[ExecResult], None] | None = None
        self._explain: Callable[[CommandError], CommandError] | None = None
        self._gone: Callable[[], None] | None = None

    # -- for the sandbox that started it

    def _follow(
        self,
        *,
        runs: Callable[[int], None] | None = None,
        judge: Callable[[ExecResult], None] | None = None,
        explain: Callable[[CommandError], CommandError] | None = None,
        gone: Callable[[], None] | None = None,
    ) -> None:
        """`runs` is called with the pid, `judge` with the result, which it may change; `explain` turns the error of a
        command that never ran into the one to raise; `gone` is called on close.
        """
        self._runs, self._judge, self._explain, self._gone = runs, judge, explain, gone

    # -- what the guest says

    def wait_started(self) -> None:
        """Waits until the command runs. Raises CommandError when it cannot be started, SandboxClosed or GuestError."""
        while self.pid is None and self.result is None:
            self.advance()

    def fileno(self) -> int:
        """A descriptor that is readable when there is news of the command, for `advance`."""
        return self._channel.fileno()

    def advance(self) -> None:
        """Waits for the next news of the command and handles it: the command runs, was stopped, or has ended.

        Raises CommandError when it could not be started, GuestError or SandboxClosed.
        """
        message, fds = frames.receive(self._channel)
        kind = message["t"]
        if kind == "started" and self.pid is not None:
            frames.close_all(fds)
            raise GuestError("the guest said {kind!r} about a command", kind=kind)
        if kind == "started":
            self.pid = integer(message, "pid", _PID)
            if fds:
                self.terminal = fds.pop()
        frames.close_all(fds)
        if kind == "started":
            if self._runs is not None:
                self._runs(integer(message, "pid", _PID))
        elif kind == "exit":
            self.result = _result(message)
            if self._judge is not None:
                self._judge(self.result)
        elif kind == "stopped":
            (self.stopped or self.resume)()
        elif kind == "failed":
            problem = start_error(self.name, message)
            raise problem if self._explain is None else self._explain(problem)
        else:
            raise GuestError("the guest said {kind!r} about a command", kind=kind)

    # -- what the host asks

    def signal(self, number: int) -> None:
        """Sends a signal to the command's process group. Does nothing when the command has ended."""
        self._tell({"t": "signal", "sig": number})

    def resume(self) -> None:
        """Continues a command that was stopped."""
        self.signal(18)  # SIGCONT, as Linux numbers it everywhere we run

    def kill(self) -> None:
        """Kills every process of the command's session."""
        self._tell({"t": "cancel"})

    def resize(self, rows: int, columns: int) -> None:
        """Tells the command's terminal its new size."""
        self._tell({"t": "resize", "rows": rows, "cols": columns})

    def _tell(self, message: dict[str, object]) -> None:
        try:
            frames.send(self._channel, message)
        except SandboxClosed:
            pass  # it ended first: the request no longer matters


ERRNO = 4095  # the largest that a system call returns
_SIGNAL = 64
_STATUS = 255
_PID = 2**31 - 1
_TIMED_OUT = Message("the command ran longer than its timeout")


def integer(message: dict[str, object], key: str, most: int = 2**63 - 1) -> int:
    """The number from 0 to `most` that the message must have under `key`. Raises GuestError."""
    value = message.get(key)
    if type(value) is not int or not 0 <= value <= most:
        raise GuestError("the guest sent no number for {key!r}", key=key)
    return value


def start_error(name: str, message: dict[str, object]) -> CommandError:
    """The guest's `failed` message as an error."""
    number, step = integer(message, "errno", ERRNO), str(message.get("step"))
    said = os.strerror(number)
    if step == "chdir":
        wrong = CommandError("cannot enter the working directory inside the sandbox: {said}", said=said, exit_code=126)
        wrong.argument = "cwd"
        return wrong
    if number == errno.ENOENT:
        return CommandError("{name}: no such command inside the sandbox", name=name, exit_code=127)
    if step == "exec":
        return CommandError("{name}: {reason}", name=name, reason=said, exit_code=126)
    step = ascii(step)[1:-1][:40]
    return CommandError("{name}: {reason} (at {step})", name=name, reason=said, step=step, exit_code=126)


def _result(message: dict[str, object]) -> ExecResult:
    signal = integer(message, "signal", _SIGNAL) if "signal" in message else None
    timed_out = message.get("timed_out") is True
    return ExecResult(
        exit_code=integer(message, "code", _STATUS) if signal is None else 128 + signal,
        signal=signal,
        timed_out=timed_out,
        duration_ms=integer(message, "wall_us") // 1000,
        user_ms=integer(message, "user_us") // 1000,
        system_ms=integer(message, "sys_us") // 1000,
        max_rss_kb=integer(message, "maxrss_kb"),
        note=_TIMED_OUT if timed_out else "",
    )
