"""Whether we may use a terminal."""

from __future__ import annotations

import os


def in_background(fd: int = 0) -> bool:
    """Whether our input (or `fd`) is a terminal that we are in the background of (`… &`, `timeout …`): using it would
    stop us."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False  # no terminal, or not one that stops anybody
