"""When a token ends, so does all that it opened."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from sandbox.errors import SandboxError
from sandbox.server import scopes
from sandbox.server.tokens import Tokens
from sandbox.websocket import WebSocketClient
from tests.server.serving import Served


def _token(served: Served) -> tuple[str, str]:
    """A token for everything: its text and its id."""
    text, made = Tokens(str(served.home / "server")).new(scopes.read(["*"]))
    return text, made.id


def _revoke(served: Served, id: str) -> None:
    Tokens(str(served.home / "server")).revoke(id)


def test_a_stream_ends_when_its_token_is_revoked(served: Served) -> None:
    text, id = _token(served)
    with served.client(text) as client, client.stream("GET", "/v1/audit/stream") as stream:
        lines = stream.iter_lines()
        next(lines)
        _revoke(served, id)
        for _ in lines:
            pass  # it comes to an end, else the test does not


def test_a_session_ends_when_its_token_is_revoked(served: Served, box: str) -> None:
    text, id = _token(served)
    line = WebSocketClient(f"{served.address}/v1/sandboxes/{box}/rpc", {"Authorization": f"Bearer {text}"})
    asked = {"jsonrpc": "2.0", "id": 1, "method": "exec", "params": {"command": ["sleep", "4321"]}}
    line.send(json.dumps(asked).encode() + b"\n")
    _revoke(served, id)
    while line.receive():
        pass
    line.close()


def test_a_ticket_is_worth_no_more_than_its_token(served: Served) -> None:
    text, id = _token(served)
    with served.client(text) as client:
        ticket = client.post("/v1/tickets").json()["protocol"]
    _revoke(served, id)
    with pytest.raises(SandboxError):
        WebSocketClient(f"{served.address}/v1/rpc", {"Sec-WebSocket-Protocol": ticket})


def test_the_token_of_a_server_that_was_killed_opens_no_other_server(tmp_path: Path) -> None:
    served = Served(tmp_path, "--port", "0", "--new-token")
    assert served.process.stdout is not None
    told = re.search(r"sbx_[\w-]+", served.process.stdout.readline())
    assert told is not None
    with served.client(told[0]) as client:
        assert client.get("/v1/me").status_code == 200
    served.end(signal.SIGKILL)
    again = Served(tmp_path)
    assert httpx.get(f"{again.address}/v1/me", headers={"Authorization": f"Bearer {told[0]}"}).status_code == 401
    again.end()


def test_a_token_for_a_sandbox_without_a_name_is_refused(tmp_path: Path) -> None:
    """`--sandbox "$ID"`, where ID is not set, would be a token for every sandbox that has no name."""
    command = [sys.executable, "-m", "sandbox.cli.main", "serve", "token", "new", "--scope", "exec", "--sandbox", ""]
    done = subprocess.run(command, env={"PATH": "/usr/bin:/bin", "SANDBOX_HOME": str(tmp_path)}, capture_output=True)
    assert done.returncode != 0 and b"sbx_" not in done.stdout
