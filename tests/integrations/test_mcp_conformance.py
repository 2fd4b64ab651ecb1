"""MCP's conformance checks against our server with the tools, resources and prompts that they call by name added."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.conformance import failures, listed
from tests.integrations.results import SUITE, Count
from tests.integrations.test_mcp_clients import Desk, desk
from tests.sandboxes import home

__all__ = ["desk", "home"]
pytestmark = pytest.mark.integrations
ROOT = Path(__file__).resolve().parents[2]
LOG_LEVELS = "log levels are optional, and deprecated since 2026-07-28"
SUBSCRIPTIONS = "subscriptions are optional; none are offered, as nothing says when a command changes a file"
#: What a server may leave out, and ours does.
NOT_OFFERED = {
    "logging-set-level": LOG_LEVELS,
    "tools-call-with-logging": LOG_LEVELS,
    "resources-subscribe": SUBSCRIPTIONS,
    "resources-unsubscribe": SUBSCRIPTIONS,
    "server-sse-polling": (
        "resuming a broken stream is optional; the SDK's store for it knows requests by their number only, so that one "
        "session could be sent another's answer"
    ),
}


def test_a_server_with_the_checks_own_tools_passes_all_that_is_not_optional(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    server = [sys.executable, "-m", "tests.integrations.conformance_server"]
    scenarios = listed(desk.run)
    failed = failures(desk.run, server, scenarios, tmp_path)
    assert set(failed) == set(NOT_OFFERED), {one: said for one, said in failed.items() if one not in NOT_OFFERED}
    record_property(SUITE, Count(len(scenarios) - len(failed), NOT_OFFERED).plain())
