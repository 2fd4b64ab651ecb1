"""`sandbox configure [--global] set KEY VALUE`: the seed's spelling of `sandbox config`."""

from __future__ import annotations

from sandbox.cli.config import add, run

__all__ = ["add", "run"]
