"""Laboratories: made for a test, taken down after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.network.lab import Lab


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """Makes a `Lab` from a network configuration."""
    made: list[Lab] = []

    def make(network: dict[str, Any] | None = None, **more: Any) -> Lab:
        made.append(Lab(tmp_path, network or {}, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()
