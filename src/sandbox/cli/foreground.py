"""A command in the foreground: it uses our terminal or pipes, gets our signals, and its status is the result.

A tenant never gets a descriptor of the user's terminal, of a file, of a device, of a socket or of a pipe that others
write to: through it, or `/proc/self/fd`, it could open the file again with other rights, change the device's mode,
talk to the socket's other end, or read what others wrote to the pipe (in a CI job, for example). Output is copied from
the sandbox's own pipe or pty. An input pipe is passed on as it is: in `… | while read line; do sandbox run …; done` we
must not read the remaining lines.
"""

from __future__ import annotations

import _signal as signal  # without the enumerations of `signal`, which take time to load
import os
import stat

from sandbox.cli.relay import StdioRelay, in_background
from sandbox.cli.relay_with_asks import asking
from sandbox.errors import SandboxClosed
from sandbox.service import why_closed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandbox.guest.process import Process
    from sandbox.result import ExecResult
    from sandbox.sandbox import Sandbox

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def foreground(
    sandbox: Sandbox,
    command: Sequence[str],
    *,
    started: Callable[[], object] | None = None,
    directory: str | None = None,
) -> ExecResult:
    """Runs the command as if it had been started here. Raises CommandError when it never started, and SandboxClosed,
    with the reason, when the sandbox ended meanwhile.

    `started` is called once the command has started; only a command without a terminal needs that. `directory`: where
    it starts, if not in the project.
    """
    try:
        return _run(sandbox, command, started, directory)
    except SandboxClosed as problem:
        raise why_closed(sandbox, problem) from None


def _run(
    sandbox: Sandbox, command: Sequence[str], started: Callable[[], object] | None, directory: str | None
) -> ExecResult:
    behind = in_background()
    if os.isatty(0) and os.isatty(1) and not behind:
        from sandbox.cli.terminal import with_terminal

        return with_terminal(sandbox, command, directory)
    null = os.stat(os.devnull).st_rdev
    kinds = [os.fstat(fd) for fd in (0, 1, 2)]
    given = [sandbox._null if kind.st_rdev == null != 0 else None for kind in kinds]
    if stat.S_ISFIFO(kinds[0].st_mode) and _nameless(0):
        given[0] = 0
    if behind:
        given[0] = sandbox._null  # reading what is typed would stop us, and it is meant for the shell
    # `2>&1`: through one pipe, to keep the order.
    one = os.path.samestat(kinds[1], kinds[2]) and given[1] is None
    ours, theirs = os.pipe() if one else (-1, -1)
    if one:
        given[1:] = theirs, theirs
    try:
        return _copied(sandbox, command, given, ours, started, directory)
    finally:
        for fd in (ours, theirs) if one else ():
            os.close(fd)


def _nameless(pipe: int) -> bool:
    """Whether it is an anonymous pipe, not a named one with an owner and a mode."""
    try:
        return os.readlink(f"/proc/self/fd/{pipe}").startswith("pipe:")
    except OSError:
        return False


def _copied(
    sandbox: Sandbox,
    command: Sequence[str],
    given: Sequence[int | None],
    both: int,
    started: Callable[[], object] | None,
    directory: str | None,
) -> ExecResult:
    """`both`: where the output of 1 and 2 together is read from, or -1."""
    with sandbox._spawn(command, directory, stdio=(given[0], given[1], given[2])) as process:
        if started is not None:
            started()
        relay = StdioRelay(process)
        if process.stdin is not None:
            relay.feed(0, process.stdin)
        for source, target in ((process.stdout, 1), (process.stderr, 2), (both if both >= 0 else None, 1)):
            if source is not None:
                relay.show(source, target)
        with Forwarding(process):
            return asking(sandbox, relay, process)


class Forwarding:
    """While active, forwards signals that would end us to the command."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._before: dict[int, object] = {}

    def __enter__(self) -> None:
        for number in FORWARDED:
            # Ignored by our parent (nohup): then the command ignores it too.
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, lambda got, _: self._process.signal(got))

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
