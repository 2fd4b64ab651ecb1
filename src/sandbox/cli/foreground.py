"""A command in the foreground: its terminal or its pipes are ours, its signals are forwarded, its status is the result.

A tenant never gets a descriptor of the user's terminal, of a file or of a socket: through `/proc/self/fd` it could open
the file anew with other rights, or talk to the socket's other end. Pipes are handed over as they are; everything else
is copied through a pipe or a pty of the sandbox's own.
"""

from __future__ import annotations

import os
import select
import signal
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.guest.process import Process
    from sandbox.result import ExecResult
    from sandbox.sandbox import Sandbox

PIECE = 2**16
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def foreground(sandbox: Sandbox, command: Sequence[str]) -> ExecResult:
    """Runs the command as if it had been started here. Raises CommandError when it never started."""
    if os.isatty(0) and os.isatty(1):
        from sandbox.cli.terminal import with_terminal

        return with_terminal(sandbox, command)
    given = [fd if _can_be_shared(fd) else None for fd in (0, 1, 2)]
    with sandbox.spawn(command, stdin=given[0], stdout=given[1], stderr=given[2]) as process:
        with Forwarding(process):
            return _copy_until_ended(process)


def _can_be_shared(fd: int) -> bool:
    try:
        mode = os.fstat(fd)
    except OSError:
        return False
    return stat.S_ISFIFO(mode.st_mode) or mode.st_rdev == os.stat(os.devnull).st_rdev != 0


class Forwarding:
    """While it lasts, signals that would end us go to the command; it decides, we report."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._before: dict[int, object] = {}

    def __enter__(self) -> None:
        for number in FORWARDED:
            # Ignored by whoever started us (nohup): then it stays so for the command too.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, lambda got, _: self._process.signal(got))

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


def _copy_until_ended(process: Process) -> ExecResult:
    """Moves bytes between our streams and the command's pipes until it has ended and its output is out."""
    line = process.line.fileno()
    outputs = {fd: to for fd, to in ((process.stdout, 1), (process.stderr, 2)) if fd is not None}
    poll = select.poll()
    for fd in (line, *outputs):
        poll.register(fd, select.POLLIN)
    if process.stdin is not None:
        poll.register(0, select.POLLIN)
    while process.result is None:
        for fd, _ in poll.poll():
            if fd == line:
                process.hear()
            elif fd == 0:
                if not _feed(process):
                    poll.unregister(0)
            elif not _copy(fd, outputs[fd]):
                poll.unregister(fd)
                del outputs[fd]
    for fd, to in outputs.items():
        os.set_blocking(fd, False)
        while _copy(fd, to):
            pass
    return process.result


def _feed(process: Process) -> bool:
    """One piece of our input; False at its end, or when the command reads no more."""
    try:
        data = os.read(0, PIECE)
        if data:
            process.write(data)
            return True
    except BrokenPipeError:
        pass
    process.close_stdin()
    return False


def _copy(source: int, target: int) -> bool:
    try:
        data = os.read(source, PIECE)
    except BlockingIOError:
        return False
    left = memoryview(data)
    while left:
        left = left[os.write(target, left) :]
    return bool(data)
