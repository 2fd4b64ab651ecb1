"""Whether we may use a terminal."""

from __future__ import annotations

import os


def in_background(fd: int = 0) -> bool:
    """Whether our input (or `fd`) is a terminal and we are in its background (`… &`, `timeout …`), so that using it
    would stop us."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False  # not a terminal, or not one that could stop us
