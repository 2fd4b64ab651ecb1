"""A command in the foreground: its terminal or its pipes are ours, its signals are forwarded, its status is the result.

A tenant never gets a descriptor of the user's terminal, of a file or of a socket: through `/proc/self/fd` it could open
the file anew with other rights, or talk to the socket's other end. Pipes are handed over as they are; everything else
is copied through a pipe or a pty of the sandbox's own.
"""

from __future__ import annotations

import os
import signal
import stat

from sandbox.cli.relay import Relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.guest.process import Process
    from sandbox.result import ExecResult
    from sandbox.sandbox import Sandbox

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def foreground(sandbox: Sandbox, command: Sequence[str]) -> ExecResult:
    """Runs the command as if it had been started here. Raises CommandError when it never started."""
    if os.isatty(0) and os.isatty(1):
        from sandbox.cli.terminal import with_terminal

        return with_terminal(sandbox, command)
    given = [fd if _can_be_shared(fd) else None for fd in (0, 1, 2)]
    with sandbox.spawn(command, stdin=given[0], stdout=given[1], stderr=given[2]) as process:
        relay = Relay(process)
        if process.stdin is not None:
            relay.feed(0, process.stdin)
        for source, target in ((process.stdout, 1), (process.stderr, 2)):
            if source is not None:
                relay.show(source, target)
        with Forwarding(process):
            return relay.run()


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
