"""A real server for E2B's clients, and what their programs are told about it."""

from __future__ import annotations

import atexit
import os
import tempfile
from pathlib import Path

from tests.server.serving import Served


def settings(served: Served, token: str | None = None) -> dict[str, str]:
    """The variables that have E2B's clients use that server."""
    return {
        "E2B_API_URL": served.address,
        "E2B_SANDBOX_URL": served.address,
        "E2B_API_KEY": token or served.token,
    }


def serve() -> Served:
    """For the blocks of a page: a server that ends with this process, which is set up to use it."""
    served = Served(Path(tempfile.mkdtemp(prefix="e2b-")))
    atexit.register(served.end)
    os.environ.update(settings(served))
    return served
