"""Never 200 for a failure: what did not happen has a status that says so, and a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Served


def test_changes_that_could_not_be_applied_are_no_success(served: Served, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old\n")
    box = served.create(filesystem={"root": str(tmp_path), "overlay": True})
    served.http.post(f"/v1/sandboxes/{box}/exec", json={"command": "echo inside > a; echo new > b"})
    (tmp_path / "a").write_text("the host's own\n")
    answer = served.http.post(f"/v1/sandboxes/{box}/apply", json={})
    assert answer.status_code == 409
    problem = answer.json()["error"]
    assert problem["code"] == "not_applied"
    assert [one["path"] for one in problem["data"]["refused"]] == ["a"]
    assert problem["data"]["applied"] == ["b"]
    assert (tmp_path / "a").read_text() == "the host's own\n"
    assert served.http.post(f"/v1/sandboxes/{box}/apply", json={"overwrite": True}).status_code == 200


def test_a_request_without_a_body_is_told_that_it_needs_one(served: Served) -> None:
    answer = served.http.post("/api/sandbox/exec")
    assert answer.status_code == 400
    problem = answer.json()["error"]
    assert problem["field"] == "body" and "no body" in problem["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/exec", {"command": ["/nowhere/program"]}, 400),
        ("POST", "/exec", {"command": "true", "cwd": "/nowhere"}, 400),
        ("POST", "/exec", {"command": "true", "timeout": -1}, 400),
        ("GET", "/files/content?path=/nowhere", None, 404),
        ("GET", "/files?path=/etc/hostname", None, 409),
        ("POST", "/files/rename", {"from": "/nowhere", "to": "/tmp/x"}, 400),
        ("POST", "/files/remove", {"path": "/tmp/nowhere"}, 404),
        ("POST", "/files/mkdir", {"path": "/usr/x"}, 403),
        ("PUT", "/files/content?path=/usr/x", None, 403),
        ("PATCH", "/network", {"allowed_hosts": 5}, 400),
        ("POST", "/allow", {"host": "not a host"}, 400),
        ("GET", "/port/1/", None, 502),
        ("GET", "/diff?path=nowhere", None, 404),
        ("POST", "/discard", {}, 409),
        ("POST", "/extend", {"lifetime": -1}, 400),
    ],
)
def test_what_failed_says_so(served: Served, box: str, method: str, path: str, body: Any, status: int) -> None:
    answer = served.http.request(method, f"/v1/sandboxes/{box}{path}", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["message"]


def test_a_streamed_command_that_cannot_start_is_refused_and_no_empty_stream(served: Served, box: str) -> None:
    headers = {"Accept": "text/event-stream"}
    answer = served.http.post(f"/v1/sandboxes/{box}/exec", json={"command": ["/nowhere/program"]}, headers=headers)
    assert answer.status_code == 400, answer.text


def test_a_sandbox_that_has_ended_is_409_and_one_that_never_was_404(served: Served) -> None:
    box = served.create()
    served.http.delete(f"/v1/sandboxes/{box}")
    for method, path in (
        ("POST", "/exec"),
        ("GET", "/stats"),
        ("GET", "/network"),
        ("POST", "/pause"),
        ("GET", "/files"),
    ):
        body = {"command": "true"} if path == "/exec" else None
        assert served.http.request(method, f"/v1/sandboxes/{box}{path}", json=body).status_code == 409
        assert served.http.request(method, f"/v1/sandboxes/vm-00000000{path}", json=body).status_code == 404
    assert served.http.delete("/v1/sandboxes/vm-00000000").status_code == 404
    assert served.http.delete(f"/v1/sandboxes/{box}").status_code == 409


def test_a_query_with_too_many_fields_is_not_a_credential(served: Served) -> None:
    with served.client(None) as nobody:
        answer = nobody.get("/files?signature=x" + "&a=b" * 100)
    assert answer.status_code == 401


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b'{"command": "\xff\xfe"}'])
@pytest.mark.parametrize(
    "path",
    [
        "/v1/sandboxes",
        "/v1/sandboxes/{box}/exec",
        "/v1/asks/1",
        "/api/sandbox/exec",
        "/api/sandbox/sign",
        "/sandboxes",
        "/execute",
    ],
)
def test_a_body_that_nobody_can_decode_is_the_clients_mistake(served: Served, box: str, path: str, body: bytes) -> None:
    kind = {"Content-Type": "application/json", "E2b-Sandbox-Id": box}
    with served.limited("create", "exec", "answer", "read") as client, served.limited("sign") as signs:
        one = signs if path.endswith("sign") else client
        answer = one.post(path.format(box=box), content=body, headers=kind)
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/api/sandbox/exec", {}, "command"),
        ("/api/sandbox/exec", {"command": "true", "timeout": 1}, "timeout"),
        ("/api/sandbox/exec", {"command": "true", "timeoutMs": 0}, "timeoutMs"),
        ("/api/sandbox/computer/click", {"x": 1}, "y"),
        ("/api/sandbox/audio/record", {}, "durationMs"),
        ("/api/sandbox/sign/approve", {}, "requestId"),
        ("/v1/sandboxes", {"confg": {}}, "confg"),
    ],
)
def test_wrong_input_names_the_field(served: Served, path: str, body: Any, field: str) -> None:
    told = served.http.post(path, json=body)
    assert (told.status_code, told.json()["error"].get("field")) == (400, field), told.text


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"command": "true", "timeout": "5"}, "timeout"),
        ({"command": "true", "max_output": "5"}, "max_output"),
    ],
)
def test_a_text_is_not_taken_for_a_number(served: Served, body: dict[str, Any], field: str) -> None:
    answer = served.http.post(f"/v1/sandboxes/{served.create()}/exec", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == field
