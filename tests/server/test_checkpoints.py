"""Checkpoints over a server: saved there, and gone on from there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox import Sandbox
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


def test_a_client_continues_from_a_checkpoint_and_the_server_knows_the_sandbox(served: Served, saved: str) -> None:
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


def test_a_missing_checkpoint_is_reported(served: Served) -> None:
    line = creating(served, served.token)
    with pytest.raises(SandboxError, match="there is no checkpoint"):
        line.call("restore", {"checkpoint": "nothing"})
    line.close()


# -- over plain HTTP


def test_a_sandbox_is_saved_listed_restored_and_the_checkpoint_removed(served: Served, box: str) -> None:
    served.http.post(f"/v1/sandboxes/{box}/exec", json={"command": "echo over http > ~/note"})
    made = served.http.post(f"/v1/sandboxes/{box}/checkpoint", json={"name": "by-http"})
    assert made.status_code == 201
    assert (made.json()["name"], made.json()["sandbox"], made.json()["saves"]) == ("by-http", box, "files")
    assert made.json() in served.http.get("/v1/checkpoints").json()["checkpoints"]
    assert served.http.post(f"/v1/sandboxes/{box}/checkpoint", json={"name": "by-http"}).status_code >= 400
    again = served.http.post("/v1/checkpoints/by-http/restore", json={"name": "again"})
    assert again.status_code == 201, again.text
    assert again.json()["name"] == "again"
    said = served.http.post("/v1/sandboxes/again/exec", json={"command": "cat ~/note"}).json()
    assert said["stdout"] == "over http\n"
    assert served.http.delete("/v1/checkpoints/by-http").status_code == 200
    assert served.http.delete("/v1/checkpoints/by-http").status_code == 404
    assert served.http.post("/v1/checkpoints/by-http/restore", json={}).status_code == 404


def test_a_paused_sandbox_runs_nothing_until_it_is_resumed(served: Served, box: str) -> None:
    assert served.http.post(f"/v1/sandboxes/{box}/pause").status_code == 200
    refused = served.http.post(f"/v1/sandboxes/{box}/exec", json={"command": "true"})
    assert refused.status_code == 409 and "paused" in refused.json()["error"]["message"]
    assert served.http.post(f"/v1/sandboxes/{box}/resume").status_code == 200
    assert served.http.post(f"/v1/sandboxes/{box}/exec", json={"command": "true"}).json()["exit_code"] == 0


def test_an_engine_that_cannot_make_checkpoints_is_an_error(served: Served) -> None:
    plain = served.create(engine="none")
    for verb in ("pause", "fork", "checkpoint"):
        answer = served.http.post(f"/v1/sandboxes/{plain}/{verb}")
        assert answer.status_code == 409 and "can neither pause" in answer.json()["error"]["message"]


def test_forks_are_sandboxes_of_the_server(served: Served, box: str) -> None:
    served.http.post(f"/v1/sandboxes/{box}/exec", json={"command": "echo forked > ~/note"})
    made = served.http.post(f"/v1/sandboxes/{box}/fork", json={"count": 2})
    assert made.status_code == 201
    for one in made.json()["sandboxes"]:
        said = served.http.post(f"/v1/sandboxes/{one['id']}/exec", json={"command": "cat ~/note"}).json()
        assert said["stdout"] == "forked\n"
        assert served.http.delete(f"/v1/sandboxes/{one['id']}").status_code == 200


def test_forks_of_a_client_are_reached_over_the_server_without_scope_host(served: Served) -> None:
    token = served.new_token("create", "read", "exec", "files", "kill")
    with Sandbox.connect(served.address, token) as first:
        first.exec("echo from the first > ~/note")
        (fork,) = first.fork()
        with fork:
            assert fork.id != first.id
            assert fork.exec("cat ~/note").stdout == "from the first\n"


def test_a_token_for_another_sandbox_sees_and_removes_no_checkpoint(served: Served, saved: str) -> None:
    with served.limited("read", "kill", sandboxes=["vm-00000000"]) as other:
        assert other.get("/v1/checkpoints").json() == {"checkpoints": []}
        assert other.delete(f"/v1/checkpoints/{saved}").status_code == 404
    with served.limited("create", "read") as creator:
        assert creator.post(f"/v1/checkpoints/{saved}/restore", json={}).status_code == 403
