from __future__ import annotations

from tests.clients.places import typescript
from tests.sandboxes import cli, home, rpc

__all__ = ["cli", "home", "rpc", "typescript"]
