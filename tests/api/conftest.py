"""One suite for every surface and every engine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sandbox.config.model import Config
from tests.api.surfaces import ENGINES, SURFACES, make
from tests.engines.framed_engine import FramedEngine
from tests.sandboxes import cli, home

__all__ = ["cli", "home"]

Make = Callable[..., Any]

#: Left out over a cluster, whose sandboxes are in the registries of its nodes.
OF_THIS_MACHINE = ("test_it_says_who_it_is", "test_changes_can_be_applied_after_the_end")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if any(name.endswith("cluster") for name in SURFACES):
        here = Path(__file__).parent
        out = [one for one in items if one.path.parent == here and one.name.startswith(OF_THIS_MACHINE)]
        config.hook.pytest_deselected(items=out)
        items[:] = [one for one in items if one not in out]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Over ENGINES (a test module may have its own), or over the one of `--engine`."""
    if "engine" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--engine")
        engines = getattr(metafunc.module, "ENGINES", ENGINES) if chosen is None else [chosen]
        metafunc.parametrize("engine", engines, indirect=True)


def pytest_sessionfinish() -> None:
    """Leaves the cluster, if the suite ran over one."""
    if (joined := sys.modules.get("tests.cluster.joined")) is not None:
        joined.leave()


@pytest.fixture
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name = str(request.param)
    if name in ("docker", "podman"):
        request.getfixturevalue(name)
    if name == "framed":
        monkeypatch.setattr("sandbox.sandbox.choose", framed)
    return name


def framed(config: Config) -> FramedEngine:
    return FramedEngine()


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
