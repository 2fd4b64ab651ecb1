"""`sandbox --rpc`: one sandbox, driven over stdin and stdout, for as long as the client lives."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping
from types import FrameType
from typing import Any, NoReturn

from sandbox.rpc.lines import widen
from sandbox.rpc.session import Session
from sandbox.rpc.slot import Slot


def serve(file: str | None = None, flags: Mapping[str, Any] | None = None) -> int:
    """Serves until the client closes stdin or the sandbox. `file` and `flags` are what the command line asked for."""
    source, sink = _own_stdio()
    _raise_descriptor_limit()
    signal.signal(signal.SIGTERM, _end)
    place = Slot(file=file, flags=flags)
    try:
        Session(source, sink, place).run()
    finally:
        place.close()
    return 0


def _end(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)  # through `finally`: an end that was asked for is not a crash


def _own_stdio() -> tuple[int, int]:
    """Takes stdin and stdout for the protocol alone: a stray print must not break it, nor a child read from it."""
    source, sink = os.dup(0), os.dup(1)
    widen(source)
    widen(sink)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.close(empty)
    return source, sink


def _raise_descriptor_limit() -> None:
    """A running command takes half a dozen descriptors here; a thousand of them are over the usual soft limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
