"""Runs a command on its own terminal: the sandbox's pty on one side, the user's terminal in raw mode on the other."""

from __future__ import annotations

import os
import signal
import sys
import termios
import tty
from contextlib import suppress

from sandbox.cli.relay import PIECE, StdioRelay
from sandbox.cli.relay_with_asks import asking
from sandbox.i18n import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sandbox.guest.process import Process
    from sandbox.result import ExecResult
    from sandbox.sandbox import Sandbox

FORWARDED = (signal.SIGTERM, signal.SIGHUP)  # the latter when the window is closed
SILENCE = 0.02  # seconds: a terminal passes on what was written to it a moment later


def with_terminal(sandbox: Sandbox, command: Sequence[str], directory: str | None = None) -> ExecResult:
    """Runs the command with a real terminal. Restores the user's own, whatever happens."""
    if sandbox.config.network.ask or sandbox.config.filesystem.ask:
        words = _(
            "sandbox: questions appear here; while a program uses the whole screen, answer them with `sandbox asks` in "
            "another terminal"
        )
        print(words, file=sys.stderr)
    size = os.get_terminal_size(1)
    variables = {"TERM": os.environ.get("TERM", "xterm-256color")}
    with sandbox._spawn(command, directory, env=variables, pty=(size.lines, size.columns)) as process:
        before = termios.tcgetattr(0)
        wakes, waking = os.pipe()
        os.set_blocking(waking, False)
        resized = signal.signal(signal.SIGWINCH, lambda *_: os.write(waking, b"."))
        ended = {number: signal.signal(number, lambda got, _: process.signal(got)) for number in FORWARDED}
        try:
            tty.setraw(0, termios.TCSANOW)  # keep what was typed already
            return _relay(sandbox, process, wakes, before)
        finally:
            with suppress(termios.error):  # it is gone
                termios.tcsetattr(0, termios.TCSADRAIN, before)
            signal.signal(signal.SIGWINCH, resized)
            for number, handler in ended.items():
                signal.signal(number, handler)
            os.close(wakes)
            os.close(waking)


def _relay(sandbox: Sandbox, process: Process, wakes: int, before: list[Any]) -> ExecResult:
    assert process.terminal is not None

    def resized() -> None:
        os.read(wakes, PIECE)
        size = os.get_terminal_size(1)
        process.resize(size.lines, size.columns)

    relay = StdioRelay(process)
    relay.when(wakes, resized)
    relay.show(process.terminal, 1)
    process.stopped = lambda: _sleep(process, before, relay)
    # A separate descriptor for input: the relay waits for space on it and for output on the other at the same time.
    with os.fdopen(os.dup(process.terminal), "wb", buffering=0) as terminal:
        relay.feed(0, terminal.fileno())
        return asking(sandbox, relay, process)


def _sleep(process: Process, before: list[Any], relay: StdioRelay) -> None:
    """Ctrl-Z stopped the command: gives the terminal back to our shell; `fg` continues.

    Without a shell that could resume us, the kernel does not stop us, and the command continues at once.
    """
    relay.flush(SILENCE)
    raw = termios.tcgetattr(0)
    termios.tcsetattr(0, termios.TCSADRAIN, before)
    os.kill(0, signal.SIGTSTP)  # the whole process group, as the terminal would have done
    termios.tcsetattr(0, termios.TCSADRAIN, raw)
    size = os.get_terminal_size(1)
    process.resize(size.lines, size.columns)
    process.resume()
