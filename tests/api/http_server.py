"""A server for the whole suite, in the registry that the tests of this process use."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from sandbox.config.home import home
from tests.server.serving import Served


def server(program: Sequence[str]) -> Served:
    """The server of the current registry: a test that sets SANDBOX_HOME has one of its own."""
    return _server(home(), tuple(program))


@cache
def _server(place: str, program: tuple[str, ...]) -> Served:
    os.makedirs(place, mode=0o700, exist_ok=True)
    served = Served(Path(place), "--port", "0", "--rate", "100000", program=program)
    atexit.register(served.end)
    return served
