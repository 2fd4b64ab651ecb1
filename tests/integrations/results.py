"""Writes down how each integration did: `docs/integrations/results.json`, from which the README's table is made.

`SANDBOX_INTEGRATIONS_RESULTS=FILE` asks for it; scripts/integrations does, when it runs everything. A framework's own
suite is what comes from its package; everything else in a module is ours.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

RESULTS = "SANDBOX_INTEGRATIONS_RESULTS"
SUITE = "suite"  # the property by which a test says how the tests that it ran in another process did: `Count.plain()`
VERSIONS = "versions"  # and with which versions, where they are not those that are installed here


@dataclass
class Count:
    """Some of the tests of one module. `missing` says why each that does not pass does not."""

    passed: int = 0
    missing: dict[str, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "of": self.passed + len(self.missing),
            "missing": dict(sorted(self.missing.items())),
        }


class Results:
    """A pytest plugin."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._whose: dict[str, tuple[str, str]] = {}  # node -> module, and "suite" or "own"
        self._counts: dict[str, dict[str, Count]] = {}
        self._versions: dict[str, str] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            module = item.path.stem
            defined = getattr(getattr(item, "function", None), "__module__", "")
            self._whose[item.nodeid] = module, "own" if defined.startswith("tests.") else "suite"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        module, whose = self._whose[report.nodeid]
        said: list[tuple[str, Any]] = report.user_properties  # type: ignore[assignment]
        suites = [value for name, value in said if name == SUITE]
        for suite in suites:
            count = self._counts.setdefault(module, {}).setdefault("suite", Count())
            count.passed += suite["passed"]
            count.missing |= suite["missing"]
        for name, value in said:
            self._versions |= value if name == VERSIONS else {}
        if suites:
            return  # the test that ran it is not one more
        count = self._counts.setdefault(module, {}).setdefault(whose, Count())
        name = report.nodeid.rpartition("::")[2]
        if report.passed:
            count.passed += 1
        elif hasattr(report, "wasxfail"):
            count.missing[name] = report.wasxfail.removeprefix("reason: ")
        else:
            count.missing[name] = "failed" if report.failed else "skipped"

    def pytest_sessionfinish(self) -> None:
        modules = {
            module: {whose: count.plain() for whose, count in sorted(counts.items())}
            for module, counts in sorted(self._counts.items())
        }
        from tests.integrations.table import ROWS

        versions = {one: _version(one) for row in ROWS for one in row.packages} | self._versions
        if os.environ.get("SANDBOX_INTEGRATIONS_ADD"):  # what another environment found stays
            before = json.loads(self._file.read_text(encoding="utf-8"))
            versions = before["versions"] | {name: one for name, one in versions.items() if one is not None}
            pages = before["modules"].get("test_pages")
            modules = dict(sorted((before["modules"] | modules | ({"test_pages": pages} if pages else {})).items()))
        data = {"versions": dict(sorted(versions.items())), "modules": modules}
        self._file.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
