"""`sandbox mcp`, used by the official client."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.sandboxes import home

__all__ = ["home"]
pytestmark = pytest.mark.walls
COMMAND = [sys.executable, "-m", "sandbox.cli.main", "mcp"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir(exist_ok=True)
    return directory


def talk(project: Path, what: Callable[[Client], Awaitable[Any]], *options: str, **more: Any) -> Any:
    """Runs the real server and lets `what` talk to it."""

    async def run() -> Any:
        server = StdioServerParameters(
            command=COMMAND[0], args=[*COMMAND[1:], *options], cwd=str(project), env=dict(os.environ)
        )
        async with Client(stdio_client(server), **more) as client:
            return await what(client)

    return asyncio.run(asyncio.wait_for(run(), 120))


def text(result: Any) -> str:
    return "\n".join(part.text for part in result.content if part.type == "text")


def test_commands_run_behind_walls_and_their_result_is_structured(home: Path, project: Path) -> None:
    async def what(client: Client) -> Any:
        assert "kernel-enforced walls" in (client.instructions or "")
        outside = await client.call_tool("run_command", {"command": "ls /root /home; echo x > made; exit 3"})
        return outside.structured_content

    done = talk(project, what)
    assert done["exit_code"] == 3 and "made" not in done["stdout"]
    assert (project / "made").read_text() == "x\n"


def test_files_are_written_edited_searched_and_patched(home: Path, project: Path) -> None:
    async def what(client: Client) -> Any:
        await client.call_tool("write_file", {"path": "src/a.py", "content": "print('one')\n"})
        await client.call_tool("edit_file", {"path": "src/a.py", "old": "one", "new": "two"})
        patch = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-print('two')\n+print('three')\n*** End Patch"
        await client.call_tool("apply_patch", {"patch": patch})
        found = await client.call_tool("search_files", {"pattern": "thr.e"})
        names = await client.call_tool("find_files", {"pattern": "**/*.py"})
        missing = await client.call_tool("read_file", {"path": "nothing"})
        assert "No such file" in text(missing)  # a model is told why
        return (
            found.structured_content,
            names.structured_content,
            text(await client.call_tool("read_file", {"path": "src/a.py"})),
            missing.is_error,
        )

    found, names, read, refused = talk(project, what)
    assert found["result"] == [{"path": "src/a.py", "line": 1, "text": "print('three')"}]
    assert names["result"] == ["src/a.py"] and read == "print('three')\n" and refused


def test_python_keeps_its_state_and_shows_pictures(home: Path, project: Path) -> None:
    async def what(client: Client) -> Any:
        await client.call_tool("run_python", {"code": "x = 41"})
        shown = await client.call_tool(
            "run_python", {"code": "class P:\n    def _repr_png_(self): return b'\\x89PNG'\ndisplay(P())\nx + 1"}
        )
        failed = await client.call_tool("run_python", {"code": "1 / 0"})
        late = await client.call_tool("run_python", {"code": "while True: pass", "timeout_seconds": 0.2})
        assert late.is_error and "timed out" in text(late)
        return [part.type for part in shown.content], text(shown), failed.is_error, text(failed)

    kinds, shown, failed, trace = talk(project, what)
    assert kinds == ["image", "text"] and shown == "42" and failed and "ZeroDivisionError" in trace


def test_output_is_streamed_and_bounded(home: Path, project: Path) -> None:
    seen: list[str | None] = []

    async def what(client: Client) -> Any:
        async def progress(progress: float, total: float | None, message: str | None) -> None:
            seen.append(message)

        return await client.call_tool(
            "run_command", {"command": "echo first; yes | head -c 1000000; echo last"}, progress_callback=progress
        )

    done = talk(project, what).structured_content
    assert done["truncated"] and done["stdout"].startswith("first\n") and done["stdout"].endswith("last\n")
    assert len(done["stdout"]) < 110_000 and seen and (seen[0] or "").startswith("first")


def test_a_call_that_is_cancelled_is_killed(home: Path, project: Path) -> None:
    async def what(client: Client) -> Any:
        call = asyncio.ensure_future(client.call_tool("run_command", {"command": "touch begun; sleep 600"}))
        while not (project / "begun").exists():
            await asyncio.sleep(0.05)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        left = "sleep"
        while "sleep" in left:
            listed = await client.call_tool("run_command", {"command": "cat /proc/[0-9]*/comm 2>/dev/null"})
            left = listed.structured_content["stdout"]  # type: ignore[index]
        return left

    assert "sleep" not in talk(project, what)


def test_a_model_cannot_widen_its_own_walls_but_sees_them_and_the_record(home: Path, project: Path) -> None:
    async def what(client: Client) -> Any:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        policy = (await client.call_tool("sandbox_policy", {})).structured_content
        await client.call_tool("run_command", {"command": "true"})
        for wrong in ("sandbox://record/1e9", "sandbox://record/-1", "sandbox://files/nowhere"):
            with pytest.raises(MCPError):
                await client.read_resource(wrong)
        record = await client.read_resource("sandbox://record/10")
        (project / "f").write_text("content")
        file = await client.read_resource("sandbox://files/f")
        prompt = await client.get_prompt("explain_refusal", {"message": "no"})
        entries, content = (vars(one.contents[0]) for one in (record, file))
        return tools, policy, json.loads(entries["text"]), content["blob"], prompt.messages

    tools, policy, record, file, prompt = talk(project, what, "--allow-host", "example.test")
    assert policy["allowed_hosts"] == ["example.test"] and policy["directory"] == str(project)
    assert tools["read_file"].annotations.read_only_hint and tools["write_file"].annotations.destructive_hint
    assert not any("allow" in name or "network" in name for name in tools)
    assert {one["sandbox"] for one in record} == {policy["id"]} and file == "Y29udGVudA==" and prompt


def test_with_an_overlay_the_persons_files_change_only_when_they_agree(home: Path, project: Path) -> None:
    async def what(client: Client) -> Any:
        await client.call_tool("write_file", {"path": "a", "content": "x"})
        listed = await client.call_tool("list_changes", {})
        applied = await client.call_tool("apply_changes", {})
        return listed.structured_content["result"], applied.is_error

    listed, refused = talk(project, what, "--overlay")
    assert listed == [{"path": "a", "kind": "added"}] and refused and not (project / "a").exists()


def test_nothing_is_left_when_the_client_ends(home: Path, project: Path) -> None:
    async def what(client: Client) -> Any:
        return (await client.call_tool("sandbox_policy", {})).structured_content["id"]

    gone = talk(project, what)
    listed = subprocess.run([*COMMAND[:-1], "list", "--json"], capture_output=True, text=True, check=True).stdout
    assert gone not in [one["id"] for one in json.loads(listed) if one["status"] == "running"]


def test_over_http_every_request_needs_the_token_and_comes_from_no_page(home: Path, project: Path) -> None:
    import httpx
    import httpx2  # what the SDK uses

    server = subprocess.Popen([*COMMAND, "--http", "0"], cwd=project, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        address = server.stderr.readline().strip()
        token = re.sub("^Authorization: ", "", server.stderr.readline().strip())
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"accept": "application/json, text/event-stream"}
        assert httpx.post(address, json=body, headers=accept).status_code == 401
        page = {**accept, "authorization": token, "origin": "http://evil.test"}
        assert httpx.post(address, json=body, headers=page).status_code == 403
        assert httpx.post(address, json=body, headers={**page, "host": "evil.test"}).status_code in (403, 421)

        async def run(session: str) -> Any:
            headers = {"authorization": token, "x-sandbox-session": session}
            http = httpx2.AsyncClient(headers=headers)
            async with http, Client(streamable_http_client(address, http_client=http)) as client:
                return (await client.call_tool("sandbox_policy", {})).structured_content["id"]

        assert asyncio.run(run("a")) != asyncio.run(run("b"))

        async def session() -> Any:
            """A client of the protocol that has sessions; it ends its own when it leaves."""
            http = httpx2.AsyncClient(headers={"authorization": token})
            line = streamable_http_client(address, http_client=http)
            async with http, Client(line, mode="legacy") as client:
                return (await client.call_tool("sandbox_policy", {})).structured_content["id"]

        gone = asyncio.run(session())
        listed = subprocess.run([*COMMAND[:-1], "list", "--json"], capture_output=True, text=True, check=True).stdout
        assert gone not in [one["id"] for one in json.loads(listed) if one["status"] == "running"]
    finally:
        server.terminate()
        server.wait(30)
