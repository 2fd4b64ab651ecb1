"""`pytest --engine qemu tests/security`: the suites about walls over another engine. A plugin of tests/conftest.py.

`auto` then means that engine, so a test needs no change. What is not about an engine's walls is left out: tests without
a sandbox, and tests that say `@pytest.mark.process_walls` (they look at what only process walls have). `--results FILE`
notes how each test ended, for the column of docs/attacks.md (scripts/attacks).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

#: Fixtures that start a `sandbox` process of their own, which would take the engine of this machine.
OTHER_PROCESSES = {"cli", "rpc", "home"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", help="what `engine: auto` means in the tests' own process")
    parser.addoption("--results", type=Path, help="a JSON file for how each test ended")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--engine") is None:
        return
    left_out = [item for item in items if not _is_about_an_engine(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def _is_about_an_engine(item: pytest.Item) -> bool:
    used = set(getattr(item, "fixturenames", ()))
    return item.get_closest_marker("process_walls") is None and not used & OTHER_PROCESSES


@pytest.fixture(autouse=True)
def _chosen_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = request.config.getoption("--engine")
    if engine == "qemu":
        request.getfixturevalue("machines")
    if engine is not None:
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
