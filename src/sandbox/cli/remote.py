"""Runs a command in another process's sandbox, on our own streams or terminal."""

from __future__ import annotations

import os
import signal
import sys
from threading import Thread
from typing import TYPE_CHECKING

from sandbox.cli.relay import in_background
from sandbox.cli.run_summary import status
from sandbox.errors import SandboxError
from sandbox.i18n import _
from sandbox.rpc.errors import RpcError
from sandbox.rpc.remote import RemoteProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sandbox.client import Client
    from sandbox.protocols import Process

_PIECE = 65536
_LEAVE = b"\x10\x11"  # Ctrl-P Ctrl-Q, as docker has it
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def piped(client: Client, command: Sequence[str], working_dir: str | None, variables: Mapping[str, str]) -> int:
    """Our stdin, stdout and stderr are the command's. Returns its exit status."""
    with client.spawn(command, working_dir, env=variables) as process:
        for number in _FORWARDED:
            signal.signal(number, lambda got, _frame: _later(lambda: process.signal(got)))
        if in_background():
            process.close_stdin()  # reading what is typed would stop us
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
    """Runs it on its own terminal; ours is raw meanwhile and restored afterwards. With `keep`, the user can detach."""
    import termios
    import tty

    environment = {"TERM": os.environ.get("TERM", "xterm-256color"), **variables}
    with client.spawn(command, working_dir, env=environment, pty=_size(), keep=keep) as process:
        before = termios.tcgetattr(0)
        signal.signal(signal.SIGWINCH, lambda *_: _later(lambda: process.resize(*_size())))
        try:
            tty.setraw(0, termios.TCSANOW)  # keep what was typed already
            keys = LeaveKeys() if keep else None
            _later(lambda: _feed(process, keys))
            return _show(process)
        except RpcError as problem:
            if keys is None or not keys.pressed:
                raise problem
            print("\r\n" + _("detached; `sandbox attach` returns to it"), end="\r\n", file=sys.stderr)
            return 0
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, before)


class LeaveKeys:
    """Finds the keys that detach in what is typed. A single Ctrl-P waits for the next key."""

    def __init__(self) -> None:
        self.pressed = False
        self._held = b""

    def sift(self, typed: bytes) -> bytes:
        """The part that goes to the command."""
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


def _show(process: Process) -> int:
    for chunk in process.chunks():
        left = memoryview(chunk.data)
        while left:
            left = left[os.write(1 if chunk.stream == "stdout" else 2, left) :]
    assert process.result is not None
    if process.result.note:
        print(f"sandbox: {_.text(process.result.note)}", file=sys.stderr)
    return status(process.result)


def _feed(process: Process, keys: LeaveKeys | None = None) -> None:
    while typed := os.read(0, _PIECE):
        if keys is not None:
            typed = keys.sift(typed)
        if typed:
            process.write(typed)
        if keys is not None and keys.pressed:
            assert isinstance(process, RemoteProcess)
            process.leave()
            return
    process.close_stdin()


def _size() -> tuple[int, int]:
    size = os.get_terminal_size(1)
    return size.lines or 24, size.columns or 80  # a terminal without a size reports 0


def _later(act: Callable[[], object]) -> None:
    """Runs in a thread: neither a signal handler nor a blocked read may delay the command's output."""

    def quietly() -> None:
        try:
            act()
        except (SandboxError, OSError):
            pass  # the command ended first

    Thread(target=quietly, daemon=True).start()
