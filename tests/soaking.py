"""How long a soak lasts."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator


def rounds() -> Iterator[int]:
    """Numbers of rounds, at least one, for SOAK_MINUTES (10)."""
    until = time.monotonic() + 60 * float(os.environ.get("SOAK_MINUTES", "10"))
    number = 0
    while number == 0 or time.monotonic() < until:
        yield number
        number += 1
