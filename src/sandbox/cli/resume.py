"""`sandbox resume`: continues a paused sandbox."""

from __future__ import annotations

from sandbox.cli.pause import add
from sandbox.cli.pause import resume as run

__all__ = ["add", "run"]
