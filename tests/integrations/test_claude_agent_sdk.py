"""Claude Agent SDK: the real SDK with the real Claude Code, against a mock of Anthropic's API."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    ResultMessage,
    create_sdk_mcp_server,
    query,
    tool,
)

from sandbox.errors import ConfigError
from sandbox.integrations import claude_agent
from sandbox.integrations.claude_agent import behind_walls, from_sandbox_settings
from sandbox.registry.registry import entries
from tests.agents.apis import HEADERS, JSON, events
from tests.agents.mock import World
from tests.agents.real import AGENTS, ANTHROPIC
from tests.sandboxes import home

__all__ = ["home"]
pytestmark = [pytest.mark.integrations, pytest.mark.anyio]
DONE = "all of it is done"


class Place:
    """A person's home, project and secret, and the API."""

    def __init__(self, directory: Path) -> None:
        self.project, self.secret = directory / "project", directory / "secret"
        self.secret.write_text("s3cret")
        self.steps: list[tuple[str, dict[str, Any]]] = []
        self.requests: list[dict[str, Any]] = []
        self.world = World(directory, self._answer)
        self.world.api = "api.anthropic.com"

    def options(self, **more: Any) -> ClaudeAgentOptions:
        return ClaudeAgentOptions(**{"cwd": self.project, "permission_mode": "bypassPermissions", **more})

    def config(self, **more: Any) -> dict[str, Any]:
        return {**more, "network": {**self.world.config(), **more.get("network", {})}}

    @property
    def results(self) -> list[str]:
        """What the model was told by the tools, as text."""
        return [str(one["content"]) for one in self._results(self.requests[-1])]

    @staticmethod
    def _results(request: dict[str, Any]) -> list[dict[str, Any]]:
        parts = [part for one in request["messages"] if isinstance(one["content"], list) for part in one["content"]]
        return [part for part in parts if part.get("type") == "tool_result"]

    def _answer(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> Any:
        if not target.startswith("/v1/messages") or "count_tokens" in target:
            return 200, JSON, b"{}"
        asked = json.loads(body)
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta: dict[str, Any] = {"type": "text_delta", "text": DONE}
        reason = "end_turn"
        if asked.get("tools"):
            self.requests.append(asked)
            number = len(self._results(asked))
            if number < len(self.steps):
                name, given = self.steps[number]
                block = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
                reason = "tool_use"
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "stop_sequence": None}
        usage = {"input_tokens": 1, "output_tokens": 1}
        if not asked.get("stream"):
            content = [{"type": "text", "text": DONE}]
            return 200, JSON, json.dumps({**head, "content": content, "stop_reason": reason, "usage": usage}).encode()
        pieces: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**head, "content": [], "stop_reason": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        return 200, HEADERS, events(*pieces)


@pytest.fixture
def place(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    (tmp_path / "person").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", ANTHROPIC)
    made = Place(tmp_path)
    yield made
    made.world.end()
    assert [one.id for one in entries(str(home)) if one.running] == []


async def run(options: ClaudeAgentOptions) -> ResultMessage:
    """One query to its end."""
    async for message in query(prompt="go", options=options):
        last = message
    assert isinstance(last, ResultMessage)
    return last


@pytest.mark.parametrize("whose", ["the SDK's", "npm's"])
async def test_no_tool_leaves_the_sandbox(place: Place, whose: str) -> None:
    more: dict[str, Any] = {}
    if whose == "npm's":
        found = next(one for one in AGENTS if one.name == "claude").directory
        assert found is not None, "run scripts/agents claude"
        more["cli_path"] = found / "claude"
    place.steps = [
        ("Bash", {"command": f"cat {place.secret}; id -un; echo made > file; env"}),
        ("Read", {"file_path": str(place.secret)}),
        ("Write", {"file_path": str(place.secret) + ".2", "content": "x"}),
        ("Bash", {"command": "curl -sS http://refused.example/"}),
    ]
    with behind_walls(place.options(**more), place.config()) as walled:
        done = await run(walled)
    assert done.subtype == "success" and done.result == DONE
    command, read, _written, network = place.results
    assert "No such file" in command and "sk-ant-api03-sandbox-placeholder" in command
    assert "does not exist" in read and "refused.example:80 is not allowed" in network
    assert "s3cret" not in str(place.results) and ANTHROPIC not in str(place.requests)
    assert not os.path.exists(f"{place.secret}.2")
    assert (place.project / "file").read_text() == "made\n"
    sent = [value for one in place.world.sent("api.anthropic.com") for _, value in one["headers"]]
    assert any(ANTHROPIC in value for value in sent), "the API never saw the real key"


async def test_what_a_projects_files_make_claude_start_is_inside(place: Place, tmp_path: Path) -> None:
    outside, inside = tmp_path / "escaped", place.project / "ran"
    hook = {"type": "command", "command": f"touch {outside}; touch {inside}"}
    (place.project / ".claude").mkdir()
    (place.project / ".claude" / "settings.json").write_text(
        json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}})
    )
    with behind_walls(place.options(), place.config()) as walled:
        await run(walled)
    assert inside.exists() and not outside.exists()


async def test_rules_about_tools_hold_and_calls_are_on_the_record(place: Place, home: Path) -> None:
    place.steps = [
        ("Bash", {"command": "touch no"}),
        ("Write", {"file_path": str(place.project / "yes"), "content": "x"}),
    ]
    with behind_walls(place.options(), place.config(tools={"disallowed": ["Bash"]})) as walled:
        await run(walled)
    assert "The tool is disallowed: Bash" in place.results[0]
    assert not (place.project / "no").exists() and (place.project / "yes").exists()
    record = "".join(one.read_text() for one in (home / "audit").glob("*.jsonl"))
    assert "Bash was blocked" in record and "Write was called" in record


async def test_your_own_hooks_and_tools_stay_outside(place: Place) -> None:
    heard: list[str] = []

    @tool("secret", "Tells a secret", {})
    async def secret(arguments: Any) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"told {place.secret.read_text()}"}]}

    async def hook(call: Any, *_: Any) -> dict[str, Any]:
        heard.append(call["tool_name"])
        return {}

    place.steps = [("mcp__mine__secret", {})]
    options = place.options(
        mcp_servers={"mine": create_sdk_mcp_server("mine", tools=[secret])},
        hooks={"PreToolUse": [HookMatcher(hooks=[hook])]},
    )
    with behind_walls(options, place.config()) as walled:
        await run(walled)
    assert heard == ["mcp__mine__secret"] and "told s3cret" in place.results[0]


async def test_a_client_that_is_left_in_the_middle_leaves_nothing(place: Place, home: Path) -> None:
    place.steps = [("Bash", {"command": "echo > began; exec sleep 1000"})]
    with behind_walls(place.options(), place.config()) as walled:
        async with ClaudeSDKClient(walled) as client:
            await client.query("go")
            async for message in client.receive_messages():
                if isinstance(message, AssistantMessage):
                    break
            while not (place.project / "began").exists():
                await asyncio.sleep(0.01)
        directory = os.path.dirname(str(walled.cli_path))
    assert not os.path.exists(directory)


async def test_the_sdks_own_sandbox_settings_mean_the_same_here(place: Place, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    place.steps = [
        ("Bash", {"command": f"echo x > {tmp_path / 'more' / 'file'}", "dangerouslyDisableSandbox": True}),
        ("Bash", {"command": "curl -sS -o /dev/null -w '%{http_code}' http://wanted.example/; cat /etc/hostname"}),
    ]
    settings: Any = {"enabled": True, "network": {"allowedDomains": ["wanted.example"]}}
    with behind_walls(place.options(sandbox=settings, add_dirs=[tmp_path / "more"]), place.config()) as walled:
        assert walled.sandbox is None
        await run(walled)
    assert (tmp_path / "more" / "file").read_text() == "x\n"
    assert "not allowed" not in place.results[1] and "wanted.example" in place.world.hosts


def test_settings_that_lead_outside_are_refused() -> None:
    with pytest.raises(ValueError, match="excludedCommands would run outside"):
        from_sandbox_settings({"enabled": True, "excludedCommands": ["docker"]})
    with pytest.raises(ValueError, match="unknown SandboxSettings: allowEverything"):
        from_sandbox_settings({"allowEverything": True})
    with pytest.raises(ConfigError):
        from_sandbox_settings({"network": {"allowedDomains": ["*"]}})
    said = {"deniedDomains": ["a.example"], "allowUnixSockets": ["/run/x"], "httpProxyPort": 3128}
    assert from_sandbox_settings({"network": said}) == {
        "denied_hosts": ["a.example"],
        "unix_sockets": ["/run/x"],
        "upstream_proxy": "http://127.0.0.1:3128",
    }


def test_the_program_that_runs_this_cannot_be_changed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(place.project / ".venv"))
    made = claude_agent._settings(place.options(), str(place.project), {})
    assert made["filesystem"]["deny_write"] == [str(place.project / ".venv")]


def test_a_link_in_the_project_does_not_lead_to_the_users_files(tmp_path: Path) -> None:
    from sandbox.integrations.claude_agent import _inline

    (tmp_path / "mine").write_text('{"mine": 1}')
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "link.json").symlink_to(tmp_path / "mine")
    (tmp_path / "project" / "own.json").write_text("{}")
    project = str(tmp_path / "project")
    for name in ("link.json", f"{project}/link.json"):
        with pytest.raises(OSError):
            _inline(name, project)
    assert _inline("own.json", project) == "{}"
    assert _inline(str(tmp_path / "mine"), project) == '{"mine": 1}'
