"""A command in another process's sandbox, on our own streams or terminal."""

from __future__ import annotations

import os
import signal
import sys
from threading import Thread
from typing import TYPE_CHECKING

from sandbox.cli.foreground import in_background
from sandbox.cli.run_summary import status
from sandbox.errors import SandboxError
from sandbox.i18n import _
from sandbox.rpc.errors import RpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sandbox.client import Client
    from sandbox.rpc.remote import RemoteProcess

_PIECE = 65536
_LEAVE = b"\x10\x11"  # Ctrl-P Ctrl-Q, as docker has it
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def piped(client: Client, command: Sequence[str], working_dir: str | None, variables: Mapping[str, str]) -> int:
    """Our stdin, stdout and stderr are the command's. Returns its exit status."""
    with client.spawn(command, working_dir, env=variables) as process:
        for number in _FORWARDED:
            signal.signal(number, lambda got, _frame: _later(lambda: process.signal(got)))
        if in_background():
            process.close_stdin()  # to read what is typed would stop us
        else:
            _later(lambda: _feed(process))
        return _show(process)


def with_terminal(
    client: Client,
    command: Sequence[str] | str,
    working_dir: str | None,
    variables: Mapping[str, str],
    *,
    keep: str | None = None,
) -> int:
    """On a terminal of its own; ours is raw meanwhile and as it was afterwards. With `keep` one can leave it."""
    import termios
    import tty

    environment = {"TERM": os.environ.get("TERM", "xterm-256color"), **variables}
    with client.spawn(command, working_dir, env=environment, pty=_size(), keep=keep) as process:
        before = termios.tcgetattr(0)
        signal.signal(signal.SIGWINCH, lambda *_: _later(lambda: process.resize(*_size())))
        try:
            tty.setraw(0, termios.TCSANOW)  # what was typed already is not lost
            keys = LeaveKeys() if keep else None
            _later(lambda: _feed(process, keys))
            return _show(process)
        except RpcError as problem:
            if keys is None or not keys.pressed:
                raise problem
            print("\r\n" + _("left it running; `sandbox attach` comes back to it"), end="\r\n", file=sys.stderr)
            return 0
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, before)


class LeaveKeys:
    """Finds the keys that leave a terminal in what is typed. A lone Ctrl-P waits for the next key, as it must."""

    def __init__(self) -> None:
        self.pressed = False
        self._held = b""

    def sift(self, typed: bytes) -> bytes:
        """What of it goes to the command."""
        typed = self._held + typed
        self._held = b""
        before, found, _after = typed.partition(_LEAVE)
        if found:
            self.pressed = True
            return before
        if typed.endswith(_LEAVE[:1]):
            self._held = _LEAVE[:1]
            return typed[:-1]
        return typed


def _show(process: RemoteProcess) -> int:
    for chunk in process.chunks():
        left = memoryview(chunk.data)
        while left:
            left = left[os.write(1 if chunk.stream == "stdout" else 2, left) :]
    assert process.result is not None
    if process.result.note:
        print(f"sandbox: {_.said(process.result.note)}", file=sys.stderr)
    return status(process.result)


def _feed(process: RemoteProcess, keys: LeaveKeys | None = None) -> None:
    while typed := os.read(0, _PIECE):
        if keys is not None:
            typed = keys.sift(typed)
        if typed:
            process.write(typed)
        if keys is not None and keys.pressed:
            process.leave()
            return
    process.close_stdin()


def _size() -> tuple[int, int]:
    size = os.get_terminal_size(1)
    return size.lines or 24, size.columns or 80  # a terminal that was never told its size says 0


def _later(act: Callable[[], object]) -> None:
    """In a thread: a signal handler or a blocked read must not hold up what the command prints."""

    def quietly() -> None:
        try:
            act()
        except (SandboxError, OSError):
            pass  # the command ended first

    Thread(target=quietly, daemon=True).start()
