"""One cluster for the whole run; each test leaves it as it found it. What is in `alone/` needs no Ray."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.three_nodes import ThreeNodes, three_nodes

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and not item.path.is_relative_to(HERE / "alone"):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def machines() -> ThreeNodes:
    return three_nodes()


@pytest.fixture(scope="session")
def cluster(machines: ThreeNodes) -> Iterator[Any]:
    from sandbox.cluster import Cluster

    with Cluster(machines.address) as joined:
        yield joined
