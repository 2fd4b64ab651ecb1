"""A command on a terminal of its own: the sandbox's pty on one side, the user's terminal in raw mode on the other."""

from __future__ import annotations

import os
import select
import signal
import termios
import tty

from sandbox.cli.foreground import PIECE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.guest.process import Process
    from sandbox.result import ExecResult
    from sandbox.sandbox import Sandbox


def with_terminal(sandbox: Sandbox, command: Sequence[str]) -> ExecResult:
    """Runs the command with a real terminal. The user's own is as it was when this returns, whatever happened."""
    size = os.get_terminal_size(1)
    variables = {"TERM": os.environ.get("TERM", "xterm-256color")}
    with sandbox.spawn(command, env=variables, pty=(size.lines, size.columns)) as process:
        before = termios.tcgetattr(0)
        wakes, waking = os.pipe()
        os.set_blocking(waking, False)
        resized = signal.signal(signal.SIGWINCH, lambda *_: os.write(waking, b"."))
        ended = signal.signal(signal.SIGTERM, lambda got, _: process.signal(got))
        try:
            tty.setraw(0)
            return _relay(process, wakes)
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, before)
            signal.signal(signal.SIGWINCH, resized)
            signal.signal(signal.SIGTERM, ended)
            os.close(wakes)
            os.close(waking)


def _relay(process: Process, wakes: int) -> ExecResult:
    assert process.terminal is not None
    line, terminal = process.line.fileno(), process.terminal
    poll = select.poll()
    for fd in (line, terminal, wakes, 0):
        poll.register(fd, select.POLLIN)
    while process.result is None:
        for fd, _ in poll.poll():
            if fd == line:
                process.hear()
            elif fd == wakes:
                os.read(wakes, PIECE)
                size = os.get_terminal_size(1)
                process.resize(size.lines, size.columns)
            elif fd == 0:
                data = os.read(0, PIECE)
                if data:
                    process.write(data)
                else:
                    poll.unregister(0)
            elif not _show(process):
                poll.unregister(terminal)
    os.set_blocking(terminal, False)
    try:
        while _show(process):
            pass
    except BlockingIOError:
        pass
    return process.result


def _show(process: Process) -> bool:
    left = memoryview(process.read(PIECE))
    if not left:
        return False
    while left:
        left = left[os.write(1, left) :]
    return True
