"""`sandbox --rpc`: one sandbox, driven over stdin and stdout, that lives as long as the client."""

from __future__ import annotations

import os
import resource
import signal
from types import FrameType
from typing import NoReturn

from sandbox.rpc.current_sandbox import CurrentSandbox
from sandbox.rpc.lines import widen
from sandbox.rpc.session import RpcSession
from sandbox.sandboxes import Sandboxes


def serve(sandboxes: Sandboxes) -> int:
    """Serves until the client closes stdin or the sandbox. `create` uses `sandboxes` to make one."""
    source, sink = _own_stdio()
    _raise_descriptor_limit()
    signal.signal(signal.SIGTERM, _end)
    current = CurrentSandbox(sandboxes=sandboxes)
    try:
        RpcSession(source, sink, current).run()
    finally:
        current.close()
    return 0


def _end(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)  # through `finally`: the sandbox is closed, not left to crash


def _own_stdio() -> tuple[int, int]:
    """Reserves stdin and stdout for the protocol: no stray print breaks it, and no child reads from it."""
    source, sink = os.dup(0), os.dup(1)
    widen(source)
    widen(sink)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.close(empty)
    return source, sink


def _raise_descriptor_limit() -> None:
    """A running command takes half a dozen descriptors here; a thousand commands would exceed the usual soft limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
