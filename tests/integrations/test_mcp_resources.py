"""`sandbox mcp`: what a client is offered besides tools, and names and values from inside that no message can hold."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx2  # what the SDK uses
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from tests.integrations.test_mcp_server import COMMAND, project, talk, text
from tests.sandboxes import home

__all__ = ["home", "project"]
pytestmark = pytest.mark.walls
FILES = ResourceTemplateReference(type="ref/resource", uri="sandbox://files/{+path}")


def plant(project: Path, *names: bytes) -> None:
    for name in names:
        Path(os.fsdecode(os.fsencode(project) + b"/" + name)).write_text("planted\n")


async def completed(client: Client, typed: str) -> list[str]:
    return (await client.complete(FILES, {"name": "path", "value": typed})).completion.values


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_completes_the_address_of_a_file_with_names_that_are_what_they_seem(
    home: Path, project: Path, mode: str
) -> None:
    (project / "src").mkdir()
    plant(project, b"src/main.py", b"src/make.py", b"src/other.py", b"README")
    plant(project, b"src/ma\x1b[2Jx", b"src/ma\xff", "src/ma\u202egnp".encode())

    async def what(client: Client) -> Any:
        assert client.server_capabilities.completions
        prompt = PromptReference(type="ref/prompt", name="explain_refusal")
        nothing = await client.complete(prompt, {"name": "message", "value": "x"})
        assert nothing.completion.values == []
        return [await completed(client, one) for one in ("", "src/ma", "nowhere/", "/etc/", "../", "src/../../")]

    assert talk(project, what, mode=mode) == [["README", "src/"], ["src/main.py", "src/make.py"], [], [], [], []]


def test_over_http_a_completion_shows_the_files_of_the_session_that_asks(home: Path, project: Path) -> None:
    command = [*COMMAND, "--overlay", "--http", "0"]
    server = subprocess.Popen(command, cwd=project, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        address = server.stderr.readline().strip()
        token = server.stderr.readline().strip().removeprefix("Authorization: ")

        async def files_of(mode: Any) -> list[str]:
            http = httpx2.AsyncClient(headers={"authorization": token, "x-sandbox-session": mode})
            async with http, Client(streamable_http_client(address, http_client=http), mode=mode) as client:
                await client.call_tool("write_file", {"path": f"of-{mode}", "content": ""})
                return await completed(client, "of-")

        assert [asyncio.run(files_of(mode)) for mode in ("legacy", "auto")] == [["of-legacy"], ["of-auto"]]
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_is_not_offered_notices_that_would_never_come(home: Path, project: Path, mode: str) -> None:
    async def what(client: Client) -> Any:
        offered = client.server_capabilities
        assert offered.resources and offered.tools and offered.prompts
        return offered.resources.subscribe or offered.resources.list_changed or offered.tools.list_changed

    assert not talk(project, what, mode=mode)


def test_a_file_whose_name_is_not_text_is_listed_found_and_reported_and_the_session_goes_on(
    home: Path, project: Path
) -> None:
    async def what(client: Client) -> Any:
        await client.call_tool("run_command", {"command": r"echo planted > $(printf 'a\377')"})
        found = (await client.call_tool("find_files", {"pattern": "*"})).structured_content
        match = (await client.call_tool("search_files", {"pattern": "planted"})).structured_content
        changed = (await client.call_tool("list_changes", {})).structured_content
        drawn = text(await client.call_tool("list_files", {}))
        await client.call_tool("run_command", {"command": r"cat $(printf 'a\377'); ls $(printf 'b\377')"})
        record = vars((await client.read_resource("sandbox://record/20")).contents[0])["text"]
        with pytest.raises(MCPError):
            await client.read_resource("sandbox://files/a%FF")
        return found, match, changed, drawn, json.loads(record)

    found, match, changed, drawn, record = talk(project, what, "--overlay")
    assert found["result"] == ["a\\udcff"] and "a\\udcff" in drawn and record
    assert match["result"] == [{"path": "a\\udcff", "line": 1, "text": "planted"}]
    assert changed["result"] == [{"path": "a\\udcff", "kind": "added"}]


def test_python_values_and_errors_with_half_a_character_reach_the_client(home: Path, project: Path) -> None:
    shown = "class P:\n  def __repr__(self): return 'half \\udcff'\nP()"

    async def what(client: Client) -> Any:
        value = await client.call_tool("run_python", {"code": shown})
        error = await client.call_tool("run_python", {"code": "raise ValueError('half \\udcff')"})
        return text(value), error.is_error, text(error)

    value, failed, error = talk(project, what)
    assert value == "half ?" and failed and "ValueError: half ?" in error
