"""`sandbox mcp` as the page sets it up, in the real clients that npm has: Claude Code, codex, MCP's own inspector and
conformance checks. No model: what is tried is that they start it, and understand what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agents.real import WHERE
from tests.docs.blocks import BLOCKS
from tests.integrations.conformance import MODULES, failures, listed
from tests.integrations.results import SUITE, Count
from tests.patience import until
from tests.sandboxes import home

__all__ = ["home"]
pytestmark = pytest.mark.integrations
ROOT = Path(__file__).resolve().parents[2]
NOWHERE = "http://127.0.0.1:9"  # the discard port: whatever a client wants of its maker's servers ends there
#: What can be asked of any server. The other scenarios call tools that only the checks' own example has.
SCENARIOS = ("server-initialize", "ping", "tools-list", "resources-list", "prompts-list", "server-sse-multiple-streams",
             "dns-rebinding-protection", "completion-complete")  # fmt: skip
OTHERS = (
    "they call tools, resources and prompts that only the checks' own example has, or need what this server does not "
    "offer: log levels, subscriptions, resumed streams"
)


class Desk:
    """A person's project, home, and a `sandbox` on the PATH that notes what it is asked."""

    def __init__(self, directory: Path, home: Path) -> None:
        self.project, self.home, self.asked = directory / "project", directory / "person", directory / "asked"
        for one in (self.project, self.home, directory / "bin"):
            one.mkdir(exist_ok=True)
        command = directory / "bin" / "sandbox"
        command.write_text(f'#!/bin/sh\ntee -a {self.asked} | exec {sys.executable} -m sandbox.cli.main "$@"\n')
        command.chmod(0o755)
        self.environment = {
            "PATH": f"{directory / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.home), "CODEX_HOME": str(self.home / ".codex"), "SANDBOX_HOME": str(home),
            "HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE, "ANTHROPIC_BASE_URL": NOWHERE, "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "LANG": "C.UTF-8",
        }  # fmt: skip

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=self.project, env={**self.environment, **more}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=180, check=False,
        )  # fmt: skip

    def methods(self) -> list[str]:
        """What a client asked, as far as it has."""
        text = self.asked.read_text() if self.asked.exists() else ""
        return [json.loads(line).get("method", "") for line in text.splitlines(keepends=True) if line.endswith("\n")]


@pytest.fixture
def desk(home: Path, tmp_path: Path) -> Desk:
    return Desk(tmp_path, home)


def client(name: str) -> str:
    found = WHERE / name / "node_modules" / ".bin" / name
    assert found.exists(), "scripts/integrations installs it"
    return str(found)


def test_claude_code_connects_to_it(desk: Desk) -> None:
    page = (ROOT / "docs" / "integrations" / "mcp.md").read_text()
    (words,) = re.findall(r"`claude (mcp add sandbox -- sandbox mcp)`", page)
    assert desk.run(client("claude"), *words.split()).returncode == 0
    told = desk.run(client("claude"), "mcp", "list")
    assert "Connected" in told.stdout, told.stdout + told.stderr
    assert desk.methods()[:2] == ["initialize", "notifications/initialized"]


def test_codex_starts_it_and_takes_its_tools(desk: Desk) -> None:
    (block,) = [one for one in BLOCKS if one.page.endswith("mcp.md") and "mcp_servers.sandbox" in one.code]
    provider = f'[model_providers.none]\nname = "none"\nbase_url = "{NOWHERE}/v1"\n'
    (desk.home / ".codex").mkdir()
    (desk.home / ".codex" / "config.toml").write_text(f'model_provider = "none"\nmodel = "m"\n{block.code}{provider}')
    words = [client("codex"), "exec", "--skip-git-repo-check", "hello"]
    process = subprocess.Popen(
        words, cwd=desk.project, env=desk.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        until(lambda: "tools/list" in desk.methods(), 120)
    finally:
        os.killpg(process.pid, 15)
        process.wait(60)


def test_mcps_inspector_calls_a_tool(desk: Desk) -> None:
    inspector = str(MODULES / ".bin" / "mcp-inspector")
    call = ("--method", "tools/call", "--tool-name", "run_command", "--tool-arg", "command=echo inside")
    done = desk.run(inspector, "--cli", "sandbox", "mcp", *call)
    assert json.loads(done.stdout)["structuredContent"]["stdout"] == "inside\n", done.stderr


def test_mcps_conformance_checks_pass(desk: Desk, tmp_path: Path, record_property: Any) -> None:
    every = listed(desk.run)
    assert set(SCENARIOS) < set(every)
    command = [sys.executable, "-m", "sandbox.cli.main", "mcp", "--http", "0"]
    assert failures(desk.run, command, list(SCENARIOS), tmp_path) == {}
    others = dict.fromkeys((one for one in every if one not in SCENARIOS), OTHERS)
    record_property(SUITE, Count(len(SCENARIOS), others).plain())
