"""Every path of the specification with bubblewrap, and what its managed sandbox does besides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Served
from tests.server.specification import Specification


class TestBubblewrap(Specification):
    engine = "bubblewrap"


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("h"))
    yield server
    server.end()


@pytest.fixture
def ready(managed: Served) -> Iterator[Served]:
    if managed.http.get("/api/sandbox/status").json()["state"] != "ready":
        assert managed.http.post("/api/sandbox/start").json()["state"] == "ready"
    yield managed


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "command"), ({"command": ""}, "command"), ({"command": 1}, "command"),
        ({"command": "true", "timeoutMs": 0}, "timeoutMs"), ({"command": "true", "workdir": ""}, "workdir"),
        ({"command": "true", "other": 1}, None),
    ],
)  # fmt: skip
def test_wrong_input_of_exec_is_400_and_names_the_field(ready: Served, body: dict[str, Any], field: str | None) -> None:
    answer = ready.http.post("/api/sandbox/exec", json=body)
    assert answer.status_code == 400
    assert field is None or field in str(answer.json()["error"])


def test_a_directory_that_does_not_exist_is_400_and_names_the_field(ready: Served) -> None:
    told = ready.http.post("/api/sandbox/exec", json={"command": "true", "workdir": "/nowhere"})
    assert (told.status_code, told.json()["error"]["field"]) == (400, "workdir")
    box = ready.create()
    told = ready.http.post(f"/v1/sandboxes/{box}/exec", json={"command": "true", "cwd": "/nowhere"})
    assert (told.status_code, told.json()["error"]["field"]) == (400, "cwd")


@pytest.mark.parametrize("name", ["%2e%2e", "%2e", "vm-12345678", "a b", "a%0a", "a" * 64])
def test_a_managed_sandbox_has_a_name_that_is_no_path_and_no_id(managed: Served, name: str) -> None:
    answer = managed.http.put(f"/v1/managers/{name}", json={})
    assert answer.status_code in (400, 404)
    assert set(managed.http.get("/v1/managers").json()["managers"]) <= {"default", "second"}


def test_a_command_over_its_time_is_a_result_that_says_so(ready: Served) -> None:
    told = ready.http.post("/api/sandbox/exec", json={"command": "sleep 60", "timeoutMs": 200}).json()
    assert told["exitCode"] != 0 and told["durationMs"] < 30_000
    assert told["timedOut"] is True


def test_output_that_was_cut_is_a_result_that_says_so(ready: Served) -> None:
    long = {"command": "head -c 40000000 /dev/zero | tr '\\0' x"}
    told = ready.http.post("/api/sandbox/exec", json=long).json()
    assert len(told["stdout"]) < 40_000_000 and told["truncated"] is True


def test_several_managed_sandboxes_have_names_and_modes_of_their_own(managed: Served) -> None:
    made = managed.http.put("/v1/managers/second", json={"mode": "off"})
    assert made.status_code in (200, 201), made.text
    assert managed.http.post("/v1/managers/second/start").json()["mode"] == "off"
    told = managed.http.post("/v1/managers/second/exec", json={"command": "true"}).json()
    assert told["executedInSandbox"] is False
    with managed.limited("exec") as client:  # no token but the owner's runs anything without walls
        assert client.post("/v1/managers/second/exec", json={"command": "true"}).status_code == 403
    managed.http.post("/v1/managers/second/stop")


def test_the_kill_switch_ends_everything_revokes_secrets_and_holds_over_a_restart(tmp_path: Path) -> None:
    place = tmp_path / "home"
    server = Served(place, cwd=tmp_path)
    assert server.http.post("/api/sandbox/start").json()["state"] == "ready"
    secret = {"KEY": {"value": "hunter2-hunter2", "hosts": ["api.example"]}}
    keyed: dict[str, Any] = {
        "network": {"allowed_hosts": ["api.example"], "secrets": secret}, "environment": {"set": {"KEY": "${KEY}"}},
    }  # fmt: skip
    box = server.create(**keyed)
    placeholder = server.http.post(f"/v1/sandboxes/{box}/exec", json={"command": "echo $KEY"}).json()["stdout"].strip()
    assert placeholder and "hunter2" not in placeholder
    ended = server.http.post("/api/sandbox/kill", json={"reason": "drill"})
    assert ended.json()["pulled"] is True and box in ended.json()["ended"]
    assert not [one for one in server.http.get("/v1/sandboxes").json()["sandboxes"] if one["status"] == "running"]
    server.end()
    again = Served(place, cwd=tmp_path)
    try:
        assert again.http.get("/api/sandbox/kill").json()["pulled"] is True
        refused = again.http.post("/v1/sandboxes", json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "kill_switch")
        assert again.http.post("/api/sandbox/start").status_code == 409
        with again.limited("read", "create", "panic", "kill") as other:
            assert other.post("/api/sandbox/kill/release").status_code == 403
        assert again.http.post("/api/sandbox/kill/release").status_code == 200
        other_box = again.create(**keyed)
        new = again.http.post(f"/v1/sandboxes/{other_box}/exec", json={"command": "echo $KEY"}).json()["stdout"].strip()
        assert new and new != placeholder
        feed = again.http.get("/api/audit/feed", params={"type": "security_kill_switch"}).json()["entries"]
        assert len(feed) >= 3 and all(one["severity"] == "critical" for one in feed)
    finally:
        again.end()
