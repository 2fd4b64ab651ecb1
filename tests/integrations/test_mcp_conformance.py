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
#: What a server may leave out, and ours does.
NOT_OFFERED = {
    "completion-complete": "completion is optional, and not offered",
    "logging-set-level": "log levels are optional, and deprecated since 2026-07-28",
    "tools-call-with-logging": "log levels are optional, and deprecated since 2026-07-28",
    "resources-subscribe": "subscriptions are optional, and not offered",
    "resources-unsubscribe": "subscriptions are optional, and not offered",
    "server-sse-polling": "a stream that breaks off is not resumed, which is optional",
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
