"""Waiting for what a pool does by itself, and looking at who is left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from sandbox.pool.pool import Pool
from sandbox.registry.registry import entries
from sandbox.sandbox import Sandbox


def until(true: Callable[[], object]) -> None:
    """Returns when it is so. A machine under load is no bug: there is plenty of time."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


def waiting(pool: Pool) -> list[Sandbox]:
    """The sandboxes that wait in a pool."""
    return [one.one for one in pool._shelf._waiting]


def running(home: Path) -> set[str]:
    """The ids of this process's sandboxes that run."""
    return {one.id for one in entries(str(home)) if one.running and one.pid == os.getpid()}
