"""Who may: tokens, scopes, host names, origins; and what a remote client may ask for."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request

from sandbox.server.app import GROUPS
from sandbox.server.scopes import VERBS
from sandbox.server.tokens import Tokens
from sandbox.websocket import WebSocketClient
from tests.patience import until
from tests.server.serving import Served

ROUTES = [route for group in GROUPS for route in group.ROUTES]


@pytest.mark.parametrize("route", ROUTES, ids=lambda one: f"{one.fn.__module__.rpartition('.')[2]}.{one.fn.__name__}")
def test_every_route_names_a_verb_or_is_public_on_purpose(route: Any) -> None:
    assert route.opt.get("public") or route.opt["verb"] in VERBS


@pytest.mark.parametrize(
    "path", ["/v1/sandboxes", "/v1/audit", "/api/sandbox/status", "/metrics", "/v1/me", "/v1/events/stream", "/v1/asks"]
)
def test_without_a_token_there_is_nothing(served: Served, path: str) -> None:
    with served.client(None) as stranger:
        assert stranger.get(path).status_code == 401
    with served.client("sbx_" + "A" * 43) as guesser:
        assert guesser.get(path).status_code == 401


def test_the_server_says_that_it_is_there_and_shows_its_schema(served: Served) -> None:
    with served.client(None) as stranger:
        assert stranger.get("/v1/health").json() == {"ok": True}
        assert stranger.get("/schema/openapi.json").json()["info"]["title"] == "sandbox"


def test_a_token_in_the_url_is_refused_even_when_it_is_valid(served: Served) -> None:
    with served.client(None) as stranger:
        for name in ("token", "access_token"):
            answer = stranger.get("/v1/sandboxes", params={name: served.token})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "token_in_url")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.", "", "a b"])
def test_another_host_name_is_refused_before_the_token_counts(served: Served, host: str) -> None:
    answer = served.http.get("/v1/sandboxes", headers={"Host": host})
    assert answer.status_code in (400, 421), host


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=json.dumps,
)
def test_a_page_of_another_origin_gets_nothing_even_with_a_token(served: Served, headers: dict[str, str]) -> None:
    assert served.http.get("/v1/sandboxes", headers=headers).status_code == 403
    assert served.http.post("/v1/sandboxes", headers=headers, json={}).status_code == 403


def test_a_page_of_the_servers_own_is_served_and_no_answer_allows_another(served: Served) -> None:
    answer = served.http.get("/v1/sandboxes", headers={"Origin": served.address})
    assert answer.status_code == 200
    assert not any(name.startswith("access-control") for name in answer.headers)
    assert served.http.options("/v1/sandboxes", headers={"Origin": "http://evil.example"}).status_code == 403


def test_headers_that_are_there_twice_are_refused(served: Served) -> None:
    for name, values in (
        ("Authorization", ["Bearer x", f"Bearer {served.token}"]),
        ("Origin", ["http://a", "http://b"]),
    ):
        headers = [(name, value) for value in values]
        answer = httpx.get(f"{served.address}/v1/sandboxes", headers=headers, trust_env=False)
        assert answer.status_code == 400


def test_a_body_whose_end_two_readers_might_see_differently_is_refused(served: Served) -> None:
    host, _, port = served.address.removeprefix("http://").partition(":")
    both = "Content-Length: 4\r\nTransfer-Encoding: chunked"
    head = f"Host: {host}:{port}\r\nAuthorization: Bearer {served.token}\r\nConnection: close\r\n{both}"
    with socket.create_connection((host, int(port)), 30) as line:
        line.sendall(f"POST /api/sandbox/kill/release HTTP/1.1\r\n{head}\r\n\r\n0\r\n\r\n".encode())
        answer = line.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400") and b"Transfer-Encoding" in answer


def test_tokens_are_kept_as_hashes_and_nobody_else_can_read_the_file(served: Served) -> None:
    file = served.home / "server" / "tokens.json"
    assert served.token not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_a_revoked_or_expired_token_is_no_longer_valid(served: Served) -> None:
    tokens = Tokens(str(served.home / "server"))
    text, made = tokens.new(frozenset({"read"}))
    with served.client(text) as client:
        assert client.get("/v1/sandboxes").status_code == 200
        tokens.revoke(made.id)
        assert client.get("/v1/sandboxes").status_code == 401
    with served.client(served.new_token("read", lifetime=-1)) as late:
        assert late.get("/v1/sandboxes").status_code == 401


def test_a_scope_opens_its_own_verb_alone(served: Served, box: str) -> None:
    tries: dict[str, tuple[str, str, Any]] = {
        "read": ("GET", "/v1/sandboxes", None),
        "exec": ("POST", f"/v1/sandboxes/{box}/exec", {"command": "true"}),
        "files": ("GET", f"/v1/sandboxes/{box}/files?path=/tmp", None),
        "audit": ("GET", "/v1/audit", None),
        "kill": ("POST", f"/v1/sandboxes/{box}/extend", {"lifetime": 1000}),
        "network": ("PATCH", f"/v1/sandboxes/{box}/network", {"denied_hosts": ["evil.example"]}),
        "create": ("POST", "/v1/sandboxes", {"config": {"limits": {"timeout": "x"}}}),
        "answer": ("POST", "/v1/asks/999999", {"answer": "deny"}),
        "apply": ("POST", f"/v1/sandboxes/{box}/apply", {}),
    }
    for scope in tries:
        with served.limited(scope) as client:
            for verb, (method, path, body) in tries.items():
                status = client.request(method, path, json=body).status_code
                assert (status != 403) == (verb == scope), (scope, verb, status)


def test_a_token_for_one_sandbox_sees_and_reaches_that_one_alone(served: Served, box: str) -> None:
    other = served.create("other")
    with served.limited("*", sandboxes=[box]) as client:
        assert [one["id"] for one in client.get("/v1/sandboxes").json()["sandboxes"]] == [box]
        for name in (other, "other", other[3:]):
            assert client.post(f"/v1/sandboxes/{name}/exec", json={"command": "true"}).status_code == 404
            assert client.get(f"/v1/sandboxes/{name}").status_code == 404
            assert client.delete(f"/v1/sandboxes/{name}").status_code == 404
        assert client.post(f"/v1/sandboxes/{box}/exec", json={"command": "true"}).status_code == 200
        served.http.post(f"/v1/sandboxes/{other}/exec", json={"command": "true"})
        assert {one["sandbox"] for one in client.get("/v1/audit?limit=1000").json()["entries"]} == {box}
        # What reaches beyond one sandbox is closed, whatever the scopes say.
        assert client.post("/v1/sandboxes", json={}).status_code == 403
        assert client.post("/api/sandbox/kill").status_code == 403
        assert client.get("/api/sandbox/status").status_code == 404
        assert client.post("/api/sandbox/start").status_code == 404
    with served.limited("exec", sandboxes=["other"]) as by_name:
        assert by_name.post(f"/v1/sandboxes/{other}/exec", json={"command": "true"}).status_code == 200
    served.http.delete(f"/v1/sandboxes/{other}")


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        ({"engine": "none"}, "engine"),
        ({"mode": "off"}, "mode"),
        ({"enabled": False}, "enabled"),
        ({"network": {"allowed_hosts": ["example.org"]}}, "network.allowed_hosts"),
        ({"network": {"preset": "open"}}, "network.preset"),
        ({"network": {"localhost_ports": [22]}}, "network.localhost_ports"),
        ({"network": {"publish": ["0.0.0.0:8080:80"]}}, "network.publish"),
        ({"network": {"unix_sockets": ["*"]}}, "network.unix_sockets"),
        ({"network": {"secrets": {"S": {"from_file": "/etc/shadow", "hosts": ["x"]}}}}, "network.secrets"),
        ({"network": {"policy_script": "/etc/passwd"}}, "network.policy_script"),
        ({"filesystem": {"allow_read": ["/etc"]}}, "filesystem.allow_read"),
        ({"filesystem": {"allow_write": ["/"]}}, "filesystem.allow_write"),
        ({"filesystem": {"show_host": True}}, "filesystem.show_host"),
        ({"filesystem": {"blocked_patterns": [], "allowed_patterns": ["*"]}}, "filesystem.allowed_patterns"),
        ({"vfs": {"direct_mounts": {"/x": {"host_path": "/", "readonly": False}}}}, "vfs.direct_mounts"),
        ({"environment": {"allow": ["*"]}}, "environment.allow"),
        ({"audit": {"directory": "/tmp/elsewhere"}}, "audit.directory"),
        ({"state": {"name": "claude"}}, "state.name"),
        ({"image": "anything"}, "image"),
        ({"user": "root"}, "user"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_create_may_not_widen_what_the_owner_set(served: Served, config: dict[str, Any], setting: str) -> None:
    with served.limited("create") as client:
        answer = client.post("/v1/sandboxes", json={"config": config})
    assert answer.status_code == 403, answer.text
    assert setting in answer.json()["error"]["message"]


@pytest.mark.parametrize("root", ["/", "/etc", "/root", "~", ".", "", "../..", "/proc/self/root"])
def test_create_may_not_name_a_directory_of_the_host(served: Served, root: str) -> None:
    with served.limited("create") as client:
        answer = client.post("/v1/sandboxes", json={"config": {"filesystem": {"root": root}}})
        assert answer.status_code in (400, 403), answer.text


def test_create_may_tighten_and_gets_a_directory_of_its_own(served: Served) -> None:
    with served.limited("create", "exec", "kill", "read") as client:
        config = {"limits": {"open_files": 64}, "filesystem": {"read_only": True}, "environment": {"set": {"A": "b"}}}
        answer = client.post("/v1/sandboxes", json={"config": config})
        assert answer.status_code == 201, answer.text
        id = answer.json()["id"]
        said = client.post(f"/v1/sandboxes/{id}/exec", json={"command": "ulimit -n; echo $A; touch x; ls -A"}).json()
        assert said["stdout"] == "64\nb\n"
        assert "Read-only" in said["stderr"]
        assert os.path.dirname(answer.json()["root"]) == f"{served.home}-workspaces"
        assert client.delete(f"/v1/sandboxes/{id}").status_code == 200


def test_network_changes_may_only_tighten(served: Served, box: str) -> None:
    with served.limited("network") as client:
        path = f"/v1/sandboxes/{box}/network"
        assert client.patch(path, json={"allowed_hosts": ["example.org"]}).status_code == 403
        assert client.patch(path, json={"block_private_ips": False}).status_code == 403
        assert client.patch(path, json={"intercept": True}).status_code == 200
        assert client.patch(path, json={"intersept": True}).status_code == 400
        assert client.post(f"/v1/sandboxes/{box}/allow", json={"host": "example.org"}).status_code == 403


def test_a_directory_that_the_owner_named_can_be_a_project_and_no_link_leads_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "project").mkdir(parents=True)
    (root / "out").symlink_to("/etc")
    server = Served(tmp_path / "home", "--port", "0", "--root", str(root), cwd=tmp_path)
    try:
        with server.limited("create") as client:
            for wanted, status in ((root / "project", 201), (root / "out", 403), (root / "project/../..", 403)):
                asked = {"config": {"filesystem": {"root": str(wanted)}}}
                assert client.post("/v1/sandboxes", json=asked).status_code == status, wanted
    finally:
        server.end()


def test_many_wrong_tokens_are_slowed_down_and_a_right_one_is_not(tmp_path: Path) -> None:
    server = Served(tmp_path / "home", "--port", "0", cwd=tmp_path)
    try:
        with server.client("sbx_wrong") as guesser:
            assert guesser.get("/v1/me").status_code == 401
            until(lambda: guesser.get("/v1/me").status_code == 429)
        assert server.http.get("/v1/me").status_code == 200
    finally:
        server.end()


def test_a_token_that_asks_too_often_waits(tmp_path: Path) -> None:
    server = Served(tmp_path / "home", "--port", "0", "--rate", "1", cwd=tmp_path)
    try:
        assert server.http.get("/v1/me").status_code == 200
        refused: list[httpx.Response] = []

        def ask() -> bool:
            refused[:] = [server.http.get("/v1/me")]
            return refused[0].status_code == 429

        until(ask)
        assert int(refused[0].headers["retry-after"]) >= 1
    finally:
        server.end()


def test_bodies_over_ten_mebibytes_are_413(served: Served, box: str) -> None:
    big = {"command": "true", "stdin": "x" * (11 * 2**20)}
    assert served.http.post(f"/v1/sandboxes/{box}/exec", json=big).status_code == 413


# -- WebSockets


def test_a_ticket_opens_one_websocket_with_the_tokens_own_scopes(served: Served, box: str) -> None:
    ticket = served.http.post("/v1/tickets").json()["protocol"]
    url = f"{served.address}/v1/sandboxes/{box}/terminal"
    line = WebSocketClient(url, {}, protocols=[ticket])
    line.close()
    line.free()
    with pytest.raises(Exception, match="not valid"):
        WebSocketClient(url, {}, protocols=[ticket])  # it was good once
    with served.limited("read") as reader:
        weak = reader.post("/v1/tickets").json()["protocol"]
    with pytest.raises(Exception, match="no scope"):
        WebSocketClient(url, {}, protocols=[weak])


@pytest.mark.parametrize("path", ["/v1/rpc", "/v1/sandboxes/{box}/rpc", "/v1/sandboxes/{box}/exec"])
def test_a_ticket_is_the_subprotocol_that_the_server_chooses(served: Served, box: str, path: str) -> None:
    """Otherwise Chromium drops the connection."""
    ticket = served.http.post("/v1/tickets").json()["protocol"]
    host, _, port = served.address.removeprefix("http://").partition(":")
    wire = WSConnection(ConnectionType.CLIENT)
    with socket.create_connection((host, int(port)), 60) as line:
        line.sendall(wire.send(Request(host="localhost", target=path.format(box=box), subprotocols=[ticket])))
        wire.receive_data(line.recv(65536))
        (accepted, *_) = wire.events()
        assert isinstance(accepted, AcceptConnection) and accepted.subprotocol == ticket


def test_a_websocket_needs_a_token_and_the_right_origin_and_host(served: Served, box: str) -> None:
    url = f"{served.address}/v1/sandboxes/{box}/terminal"
    right = {"Authorization": f"Bearer {served.token}"}
    for headers in ({}, {"Authorization": "Bearer x"}, {**right, "Origin": "http://evil.example"}):
        with pytest.raises(Exception, match="token|origin"):
            WebSocketClient(url, headers)
