"""One server for each module of tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.serving import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home: Path = tmp_path_factory.mktemp("h")
    server = Served(home)
    yield server
    server.end()


@pytest.fixture(scope="module")
def box(served: Served) -> str:
    """A sandbox of that server."""
    return served.create()
