"""How the suite runs as root and as an ordinary user (see CONTRIBUTING.md, "Tests run twice")."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import hypothesis
import pytest

from tests.sandboxes import configure

pytest_plugins = [
    "tests.network.room",
    "tests.network.furnished",
    "tests.skips",
    "tests.second_try",
    "tests.engine_choice",
    "tests.engines.container_engines",
    "tests.engines.machines",
    "tests.engines.apple_engine",
]

#: Everything here is about walls. Elsewhere a module or a test says so: `pytestmark = pytest.mark.walls`.
WALLS = ("engines", "guest", "security")

# A machine under load is no bug: no deadlines, and examples may take their time to be made. No database: the ordinary
# user cannot write in root's tree. The suite tries the same examples each time, so that a red run is about the change
# at hand; soaking looks for new ones.
patient = hypothesis.settings(deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("suite", patient, derandomize=True)
hypothesis.settings.register_profile("soak", patient, max_examples=20_000)


def pytest_configure(config: pytest.Config) -> None:
    _leave_our_modules_as_they_are(config)
    soaking = config.getoption("markexpr") == "soak"
    hypothesis.settings.load_profile("soak" if soaking else "suite")
    # Under nohup, or in the background of a script, these are ignored, and whatever is started here would ignore them
    # too. A handler that does nothing is nobody's heritage.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def _leave_our_modules_as_they_are(config: pytest.Config) -> None:
    """pytest rewrites the assertions of plugins, and ours is one, so it parses every module of ours when it is imported
    for the first time. The gate imports its own in its thread, and two threads that parse at once are a SystemError in
    Python 3.11.2 ("AST constructor recursion depth mismatch")."""
    hook = config.pluginmanager.rewrite_hook
    marked: set[str] = getattr(hook, "_must_rewrite", set())
    marked -= {name for name in marked if name.partition(".")[0] == "sandbox"}
    getattr(hook, "_marked_for_rewrite_cache", {}).clear()


def pytest_report_header() -> str:
    return "running as root" if os.geteuid() == 0 else f"running as an ordinary user (uid {os.geteuid()})"


@pytest.fixture(autouse=True)
def _nesting_limit() -> None:
    """As in any other program: tests that import eth-abi themselves raise it for all that follow in their process."""
    sys.setrecursionlimit(1000)


# First, because `-m` is applied in this hook too and must see the mark.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.path.relative_to(here).parts[0] in WALLS:
            item.add_marker(pytest.mark.walls)


@pytest.fixture(autouse=True)
def _home_of_its_own(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test writes into the user's own record, registry or config, or reads them."""
    place = tmp_path_factory.getbasetemp() / "sandbox-home"
    configure(request.config, place)
    monkeypatch.setenv("SANDBOX_HOME", str(place))
    # One authority for all of them: to make it anew takes a tenth of a second.
    monkeypatch.setenv("SANDBOX_AUTHORITY", str(tmp_path_factory.getbasetemp() / "sandbox-authority"))
