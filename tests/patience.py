"""How tests wait on a busy machine: for the event, never for a number of seconds that is usually enough."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(what: Callable[[], T], seconds: float = 60) -> T:
    """What `what` returns once that is true. Fails when it does not become true."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, f"it never came: {what}"
        time.sleep(0.01)
    return found


def given_time(run: Callable[[float], T], far_enough: Callable[[T], object]) -> T:
    """Calls `run` with a timeout that cuts it off, longer each time until it gets far enough before: a busy machine may
    take a second to start a shell."""
    for seconds in (0.3, 2, 8):
        if far_enough(result := run(seconds)):
            return result
    return run(30)


def open_descriptors() -> int:
    """How many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))


def assert_given_back(before: int, count: Callable[[], int] = open_descriptors) -> None:
    """There are no more than before. What earlier tests of this process left may end meanwhile, and what these left may
    take a moment; a leak stays."""
    until(lambda: count() <= before)
