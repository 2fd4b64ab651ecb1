"""Which tests about walls were skipped, and whether they may be on this machine. A plugin of tests/conftest.py."""

from __future__ import annotations

import os

import pytest
from _pytest.terminal import TerminalReporter

EXPECTED = "SANDBOX_EXPECTED_SKIPS"  # names a file as .ci/expected-skips, from the root of the tree


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(reporter, TerminalReporter) and unexpected(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    if reasons := unexpected(terminalreporter):
        terminalreporter.section("skipped tests about walls that this machine must run", red=True)
        for test, reason in reasons:
            terminalreporter.line(f"{test}: {reason}")


def unexpected(reporter: TerminalReporter) -> list[tuple[str, str]]:
    """The skipped tests about walls whose reason is not in the file; none where no file is named."""
    if EXPECTED not in os.environ:
        return []
    lines = (reporter.config.rootpath / os.environ[EXPECTED]).read_text().splitlines()
    who = "root: " if os.geteuid() == 0 else "user: "
    allowed = [line.removeprefix(who) for line in lines if line.startswith(who)]
    found = []
    for report in reporter.stats.get("skipped", []):
        if "walls" not in report.keywords or not isinstance(report.longrepr, tuple):
            continue
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason not in allowed:
            found.append((report.nodeid, reason))
    return found
