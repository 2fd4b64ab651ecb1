"""`sandbox resume`: has a paused sandbox go on."""

from __future__ import annotations

from sandbox.cli.pause import add
from sandbox.cli.pause import resume as run

__all__ = ["add", "run"]
