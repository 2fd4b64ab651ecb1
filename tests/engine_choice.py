"""`pytest --engine qemu tests/security`: the suites about walls, and the API's, over another engine (also "docker",
"podman", and "framed" for tests/api). A plugin of tests/conftest.py.

`auto` then means that engine, so a test needs no change. A `sandbox` command that a test starts is told by the user's
configuration, where that is ours: `home` of tests/sandboxes.py, and the one that every test has. What is not about an
engine's walls is left out: tests that say `@pytest.mark.process_walls` (they look at what only process walls have).
`--results FILE` notes how each test ended, for the column of docs/attacks.md (scripts/attacks).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sandboxes import CONFIGURED

#: Fixtures that start a `sandbox` process of their own.
OTHER_PROCESSES = {"cli", "rpc", "home"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", help="what `engine: auto` means in the tests' own process")
    parser.addoption("--results", type=Path, help="a JSON file for how each test ended")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--engine") is None:
        return
    apart = config.getoption("--engine") not in CONFIGURED
    left_out = [item for item in items if not _is_about_an_engine(item, apart)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def _is_about_an_engine(item: pytest.Item, apart: bool) -> bool:
    """`apart`: a `sandbox` process would take the engine of this machine."""
    used = set(getattr(item, "fixturenames", ()))
    if item.path.parent.name == "api":
        return "engine" in used  # the API's suite passes it on to other processes, too
    return item.get_closest_marker("process_walls") is None and not (apart and used & OTHER_PROCESSES)


@pytest.fixture(autouse=True)
def _chosen_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = request.config.getoption("--engine")
    if engine == "qemu":
        request.getfixturevalue("machines")
    if engine == "apple-container":
        request.getfixturevalue("apple")
    if engine is not None and engine != "framed":
        monkeypatch.setattr("sandbox.engines.choose._on_linux", lambda mode: engine)


class Results:
    """How each test ended: `passed`, `failed` or `skipped`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ended: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            test = report.nodeid.partition("[")[0]
            worst = {self._ended.get(test, "passed"), report.outcome}
            self._ended[test] = "failed" if "failed" in worst else min(worst)

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps(self._ended, indent=1, sort_keys=True))


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--results")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Results(path))
