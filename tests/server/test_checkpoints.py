"""Checkpoints over a server: saved there, and gone on from there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.errors import SandboxError
from sandbox.remote_server import _connection
from sandbox.rpc.connection import Connection
from tests.server.serving import Served


@pytest.fixture
def saved(served: Served, box: str) -> Iterator[str]:
    line = _connection(f"{served.address}/v1/sandboxes/{box}/rpc", served.token, None)
    line.call("exec", {"command": ["sh", "-c", "echo kept > ~/note"]})
    name = line.call("checkpoint", {})["name"]
    line.close()
    yield str(name)


def creating(served: Served, token: str) -> Connection:
    return _connection(f"{served.address}/v1/rpc", token, None)


def test_a_client_goes_on_from_a_checkpoint_and_the_server_knows_the_sandbox(served: Served, saved: str) -> None:
    line = creating(served, served.token)
    made = line.call("restore", {"checkpoint": saved})["id"]
    told = served.http.post(f"/v1/sandboxes/{made}/exec", json={"command": "cat ~/note"}).json()
    assert told["stdout"] == "kept\n"
    line.close()


def test_a_token_without_the_scope_restores_nothing(served: Served, saved: str) -> None:
    line = creating(served, served.new_token("create", "read", "exec"))
    with pytest.raises(SandboxError, match="no scope 'host'"):
        line.call("restore", {"checkpoint": saved})
    line.close()


def test_a_checkpoint_that_is_not_there_is_said_so(served: Served) -> None:
    line = creating(served, served.token)
    with pytest.raises(SandboxError, match="there is no checkpoint"):
        line.call("restore", {"checkpoint": "nothing"})
    line.close()
