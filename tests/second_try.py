"""`pytest --second-try`: a few tests that failed beside others run once more, alone. A plugin of tests/conftest.py.

On two processors, beside 10,000 others, one test in a run meets a time limit that it would never meet otherwise. A test
that passes alone is named at the end, to be looked at, and does not fail the run. One about security does: there, once
in a thousand is a hole.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from _pytest.terminal import TerminalReporter

MOST = 3  # more than these is no accident
NEVER = "tests/security/"
PASSED_ALONE = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--second-try", action="store_true", help="run a few failed tests once more, alone")


# Before tests/skips.py, which has the last word.
@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not config.getoption("--second-try") or hasattr(config, "workerinput"):
        return
    if exitstatus != pytest.ExitCode.TESTS_FAILED or not isinstance(reporter, TerminalReporter):
        return
    failed = list(dict.fromkeys(one.nodeid for key in ("failed", "error") for one in reporter.stats.get(key, [])))
    if not 0 < len(failed) <= MOST or any(test.startswith(NEVER) for test in failed):
        return
    if _pass_alone(config, failed):
        config.stash[PASSED_ALONE] = failed
        session.exitstatus = pytest.ExitCode.OK


def _pass_alone(config: pytest.Config, tests: list[str]) -> bool:
    engine = config.getoption("engine", None)
    options = ["--engine", engine] if engine else []
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "", *options, *tests]
    return subprocess.run(command, cwd=config.rootpath).returncode == 0


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    if tests := config.stash.get(PASSED_ALONE, []):
        terminalreporter.section("failed beside the others, passed alone: look at these", yellow=True)
        for test in tests:
            terminalreporter.line(f"FLAKY {test}")
