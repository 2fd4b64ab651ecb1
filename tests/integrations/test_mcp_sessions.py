"""`sandbox mcp --http`: a session that nobody uses gives its sandbox back; many sessions do not shut others out."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2  # what the SDK uses
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver.exceptions import ToolError

from sandbox.aio import AsyncSandbox
from sandbox.integrations import mcp_sessions
from sandbox.integrations.mcp_sessions import SessionSandboxes
from tests.integrations.test_mcp_server import COMMAND, project, text
from tests.patience import until
from tests.sandboxes import home

__all__ = ["home", "project"]
pytestmark = pytest.mark.walls


@contextmanager
def served(project: Path, *options: str) -> Iterator[Callable[[str], Any]]:
    """The real server; yields what makes a client of a session."""
    server = subprocess.Popen([*COMMAND, "--http", "0", *options], cwd=project, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        address = server.stderr.readline().strip()
        token = re.sub("^Authorization: ", "", server.stderr.readline().strip())

        @contextmanager
        def headers(session: str) -> Iterator[Any]:
            yield address, {"authorization": token, "x-sandbox-session": session}

        yield headers
    finally:
        server.terminate()
        server.wait(30)


async def call(to: Any, tool: str, words: dict[str, Any]) -> Any:
    address, headers = to
    http = httpx2.AsyncClient(headers=headers, timeout=100)
    async with http, Client(streamable_http_client(address, http_client=http)) as client:
        return await client.call_tool(tool, words)


def listed() -> dict[str, str]:
    """What `sandbox list` says of each sandbox."""
    shown = subprocess.run([*COMMAND[:-1], "list", "--json"], capture_output=True, text=True, check=True).stdout
    return {one["id"]: one["status"] for one in json.loads(shown)}


def running() -> set[str]:
    return {name for name, status in listed().items() if status == "running"}


def test_an_unused_session_gives_its_sandbox_back_and_its_client_gets_an_error(home: Path, project: Path) -> None:
    with served(project, "--idle", "1") as session, session("a") as to:
        first = asyncio.run(call(to, "sandbox_policy", {})).structured_content["id"]
        until(lambda: first not in running())
        told = asyncio.run(call(to, "run_command", {"command": "true"}))
        assert told.is_error and "the next call starts a new one" in text(told)
        assert asyncio.run(call(to, "sandbox_policy", {})).structured_content["id"] != first


def test_a_session_in_which_a_call_runs_is_not_idle(home: Path, project: Path) -> None:
    with served(project, "--idle", "0.2") as session, session("a") as to:
        done = asyncio.run(call(to, "run_command", {"command": "sleep 2; echo whole"}))
        assert done.structured_content["stdout"] == "whole\n"


class Clients:
    """Contexts of calls from sessions by name."""

    def __getitem__(self, name: str) -> Any:
        return SimpleNamespace(headers={"x-sandbox-session": name})


def test_at_the_limit_the_session_that_was_unused_longest_makes_room(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    clients = Clients()

    async def run() -> None:
        sandboxes = SessionSandboxes(lambda _: AsyncSandbox({}), most=2)
        try:
            ids = {name: (await sandboxes.of(clients[name])).id for name in ("a", "b")}
            with pytest.raises(ToolError, match="too many sessions"):  # both were used just now
                await sandboxes.of(clients["c"])
            monkeypatch.setattr(mcp_sessions, "SPARED", 0.0)
            async with sandboxes.using(clients["a"]):  # the oldest, but a call runs in it
                await sandboxes.of(clients["c"])
                assert (await sandboxes.of(clients["a"])).id == ids["a"]
            assert ids["a"] in running() and ids["b"] not in running()
            with pytest.raises(ToolError, match="the next call starts a new one"):
                await sandboxes.of(clients["b"])
        finally:
            await sandboxes.close()

    asyncio.run(run())
    assert not running()


def test_a_session_that_is_ended_while_its_sandbox_starts_leaves_nothing(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)

    async def run() -> None:
        sandboxes = SessionSandboxes(lambda _: AsyncSandbox({}))
        starting = asyncio.ensure_future(sandboxes.of(Clients()["a"]))
        await asyncio.sleep(0)
        await sandboxes.end(mcp_sessions.name_of(Clients()["a"]))
        await asyncio.gather(starting, return_exceptions=True)

    asyncio.run(run())
    assert not running()
