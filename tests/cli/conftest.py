from __future__ import annotations

from tests.sandboxes import cli, home, rpc

__all__ = ["cli", "home", "rpc"]
