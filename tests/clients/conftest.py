from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.images import manage
from tests.clients.places import typescript
from tests.sandboxes import cli, home, rpc

__all__ = ["cli", "home", "rpc", "typescript"]


@pytest.fixture(autouse=True)
def _standard_is_the_hosts_system(home: Path) -> None:
    """The seeds' samples ask for the image `standard`, which takes minutes to build."""
    manage.name_host("standard")
