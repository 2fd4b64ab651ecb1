"""`sandbox mcp --http`, attacked by others on this machine and by one client against another."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import httpx2  # what the SDK uses
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.integrations.test_mcp_server import COMMAND, project, text
from tests.sandboxes import home

__all__ = ["home", "project"]
pytestmark = pytest.mark.walls
ACCEPT = {"accept": "application/json, text/event-stream"}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
DESCRIPTORS = 800


class Mcp:
    """The real server, with few descriptors."""

    def __init__(self, project: Path, port: int = 0) -> None:
        def few() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

        self.process = subprocess.Popen(
            [*COMMAND, "--http", str(port)], cwd=project, stderr=subprocess.PIPE, text=True, preexec_fn=few
        )
        assert self.process.stderr is not None
        self.address = self.process.stderr.readline().strip()
        self.token = self.process.stderr.readline().strip().removeprefix("Authorization: ")
        self.place = ("127.0.0.1", int(urlsplit(self.address).port or 0))
        self.http = httpx.Client(trust_env=False, timeout=60, headers=ACCEPT)

    def post(self, method: str, params: dict[str, Any], **headers: str) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post(self.address, json=body, headers={"authorization": self.token, **sent})

    def session(self) -> str:
        """A session of the older protocol."""
        begun = self.post("initialize", HELLO)
        assert begun.status_code == 200, begun.text
        return str(begun.headers["mcp-session-id"])

    def run(self, command: str, session: str) -> str:
        words = {"name": "run_command", "arguments": {"command": command}}
        answer = self.post("tools/call", words, mcp_session_id=session)
        line = next(one for one in answer.text.splitlines() if one.startswith("data: {"))
        return str(json.loads(line[6:])["result"]["structuredContent"]["stdout"])

    def end(self) -> None:
        self.http.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)


@pytest.fixture
def server(home: Path, project: Path) -> Iterator[Mcp]:
    one = Mcp(project)
    yield one
    one.end()


def test_connections_without_a_token_do_not_shut_its_clients_out(server: Mcp) -> None:
    session = server.session()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with ExitStack() as flood:
            for _ in range(2 * DESCRIPTORS):
                line = flood.enter_context(socket.create_connection(server.place, 60))
                try:
                    line.sendall(b"POST /mcp HTT")
                except ConnectionError:
                    pass  # dropped already
            server.http.close()
            server.http = httpx.Client(trust_env=False, timeout=60, headers=ACCEPT)
            assert server.run("echo served", session) == "served\n"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert server.process.poll() is None


def test_a_client_does_not_get_into_a_session_by_sending_its_id(server: Mcp) -> None:
    session = server.session()
    server.run("echo mine > /tmp/note", session)

    async def other() -> str:
        headers = {"authorization": server.token, "mcp-session-id": session}
        http = httpx2.AsyncClient(headers=headers, timeout=60)
        async with http, Client(streamable_http_client(server.address, http_client=http)) as client:
            return text(await client.call_tool("run_command", {"command": "cat /tmp/note"}))

    assert "No such file" in asyncio.run(other())
    assert server.run("cat /tmp/note", session) == "mine\n"


def test_a_client_that_never_ended_its_sessions_can_open_another(server: Mcp) -> None:
    for _ in range(70):  # more than can have a sandbox
        session = server.session()
    assert server.run("echo served", session) == "served\n"


def test_nothing_is_answered_without_the_token(server: Mcp) -> None:
    upgrade = {"upgrade": "websocket", "connection": "upgrade", "sec-websocket-key": "x", "sec-websocket-version": "13"}
    for method in ("GET", "POST", "DELETE", "OPTIONS", "PUT"):
        for given in ({}, upgrade, {"authorization": "Bearer x"}, {"authorization": server.token.lower()}):
            answer = server.http.request(method, server.address, headers=given)
            assert (answer.status_code, answer.content) == (401, b""), (method, given)


def test_a_new_server_on_the_same_port_knows_neither_the_token_nor_the_sessions_of_the_last(
    server: Mcp, project: Path
) -> None:
    session = server.session()
    server.run("true", session)
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.communicate(timeout=60)
    second = Mcp(project, server.place[1])
    try:
        assert second.address == server.address
        assert second.post("tools/list", {}, authorization=server.token).status_code == 401
        assert second.post("tools/list", {}, mcp_session_id=session).status_code == 404
    finally:
        second.end()
