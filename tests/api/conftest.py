"""One suite for every surface and every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.api.surfaces import ENGINES, SURFACES, make
from tests.sandboxes import cli, home

__all__ = ["cli", "home"]

Make = Callable[..., Any]

#: Left out over a cluster, whose sandboxes are in the registries of its nodes.
OF_THIS_MACHINE = ("test_it_says_who_it_is", "test_changes_can_be_applied_after_the_end")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "cluster" in SURFACES:
        here = Path(__file__).parent
        out = [one for one in items if one.path.parent == here and one.name.startswith(OF_THIS_MACHINE)]
        config.hook.pytest_deselected(items=out)
        items[:] = [one for one in items if one not in out]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=list(SURFACES))
def surface(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def open_sandbox(surface: str, engine: str, project: Path) -> Iterator[Make]:
    """Makes sandboxes with further settings; they are closed at the end."""
    with ExitStack() as stack:
        yield lambda **config: stack.enter_context(make(surface, engine, project, **config))


@pytest.fixture
def sb(open_sandbox: Make) -> Any:
    return open_sandbox()
