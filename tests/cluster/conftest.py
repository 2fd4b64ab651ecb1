"""One cluster for the whole run; each test leaves it as it found it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.three_nodes import ThreeNodes, three_nodes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def machines() -> ThreeNodes:
    return three_nodes()


@pytest.fixture(scope="session")
def cluster(machines: ThreeNodes) -> Iterator[Any]:
    from sandbox.cluster import Cluster

    with Cluster(machines.address) as joined:
        yield joined
