"""Clients whose token allows little, and who want more."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sandbox import Sandbox
from sandbox.errors import Denied
from sandbox.websocket import WebSocketClient
from tests.server.serving import Served

POLICY = {"denied_hosts": ["evil.example"], "http": {"deny": ["* evil2.example/"]}, "strip_response_headers": ["x-a"]}


@pytest.fixture(scope="module")
def rooted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """A server whose clients may name projects in a directory."""
    projects = tmp_path_factory.mktemp("p") / "projects"
    projects.mkdir()
    owners = projects.parent / "config.yaml"
    owners.write_text(f"filesystem: {{allow_read: [{projects}]}}")
    words = ("--port", "0", "--root", str(projects), "--config", str(owners))
    server = Served(tmp_path_factory.mktemp("h"), *words)
    yield server, projects
    server.end()


def _over_http(served: Served, box: str, changes: dict[str, Any]) -> None:
    with served.limited("network", sandboxes=[box]) as client:
        assert client.patch(f"/v1/sandboxes/{box}/network", json=changes).status_code == 200


def _over_rpc(served: Served, box: str, changes: dict[str, Any]) -> None:
    token = served.new_token("read,network", sandboxes=[box])
    line = WebSocketClient(f"{served.address}/v1/sandboxes/{box}/rpc", {"Authorization": f"Bearer {token}"})
    line.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "update_network", "params": changes}).encode() + b"\n")
    said = line.receive()
    while b'"id":1' not in said and said:
        said += line.receive()
    line.close()
    assert b'"result"' in said


@pytest.mark.parametrize("change", [_over_http, _over_rpc])
def test_a_client_that_may_only_tighten_takes_nothing_off_a_block_list(served: Served, change: Any) -> None:
    box = served.create(network={"allowed_hosts": ["*"], **POLICY})
    change(served, box, {"denied_hosts": [], "http": {"deny": []}, "strip_response_headers": []})
    change(served, box, {"denied_hosts": ["worse.example"]})
    now = served.http.get(f"/v1/sandboxes/{box}/network").json()["network"]
    assert now["denied_hosts"] == ["evil.example", "worse.example"]
    assert now["http"]["deny"] == POLICY["http"]["deny"]  # type: ignore[index]
    assert now["strip_response_headers"] == ["x-a"]


# Changes, without an end, what the name `x` means: the project, or a link out of the projects.
SWAPPING = """
import ctypes, os, sys
os.chdir(sys.argv[1])
os.mkdir("x")
os.symlink(sys.argv[2], "y")
print("ready", flush=True)
swap = ctypes.CDLL(None).renameat2
while True:
    swap(-100, b"x", -100, b"y", 2)
"""


@pytest.mark.walls
@pytest.mark.parametrize("key", ["root", "allow_read"])
def test_a_project_that_a_tenant_turns_into_a_link_shows_nothing_else(
    rooted: tuple[Served, Path], tmp_path: Path, key: str
) -> None:
    served, projects = rooted
    outside, own = tmp_path / "outside", projects / key
    outside.mkdir()
    own.mkdir()
    (outside / "note.txt").write_text("found")
    box = served.create(filesystem={"root": str(own)})
    asked = {"command": ["python3", "-c", SWAPPING, str(own), str(outside)]}
    headers = {"Accept": "text/event-stream"}
    with (
        served.limited("create,exec,kill") as client,
        served.http.stream("POST", f"/v1/sandboxes/{box}/exec", json=asked, headers=headers) as swapping,
    ):
        lines = swapping.iter_lines()  # kept: who leaves ends the command
        next(lines)
        filesystem: dict[str, Any] = {"root": f"{own}/x"}
        if key == "allow_read":
            filesystem = {"allow_read": [f"{own}/x"]}
        for _ in range(25):
            made = client.post("/v1/sandboxes", json={"config": {"filesystem": filesystem}})
            if made.status_code == 201:
                one = f"/v1/sandboxes/{made.json()['id']}"
                said = client.post(f"{one}/exec", json={"command": f"cat {outside}/note.txt {own}/x/note.txt"})
                assert "found" not in said.text
                client.delete(one)


def test_a_client_cannot_have_the_server_unpack_its_messages(served: Served, box: str) -> None:
    """A megabyte of WebSocket message could unpack to a gigabyte before its size is looked at."""
    where = urlsplit(served.address)
    with socket.create_connection((where.hostname, where.port)) as line:
        line.sendall(
            f"GET /v1/sandboxes/{box}/rpc HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: Bearer {served.token}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n".encode()
        )
        said = b""
        while b"\r\n\r\n" not in said:
            said += line.recv(4096)
    assert said.startswith(b"HTTP/1.1 101") and b"permessage-deflate" not in said


def test_of_many_who_ask_for_a_name_at_once_one_gets_it(served: Served) -> None:
    """A token for a name would reach every sandbox that has it."""
    answers = [served.start("/v1/sandboxes", {"name": "wanted"}) for _ in range(8)]
    assert sorted(one.result().status_code for one in answers) == [201] + [409] * 7


# -- how long it lives


@pytest.fixture(scope="module")
def limited_life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose owner lets no sandbox live longer than an hour."""
    owners = tmp_path_factory.mktemp("o") / "config.yaml"
    owners.write_text("limits: {lifetime: 1h, idle_timeout: 30m}")
    server = Served(tmp_path_factory.mktemp("h"), "--port", "0", "--config", str(owners))
    yield server
    server.end()


@pytest.mark.parametrize(
    "longer", [{"lifetime": None}, {"lifetime": 7200}, {"idle_timeout": None}, {"idle_timeout": 3600}]
)
@pytest.mark.parametrize("by", ["owner", "token"])
def test_extend_never_lengthens_what_the_owner_limited(limited_life: Served, by: str, longer: dict[str, Any]) -> None:
    served = limited_life
    token = served.new_token("create", "read", "kill")
    with served.client(token) as client:
        creator = served.http if by == "owner" else client
        box = creator.post("/v1/sandboxes", json={"config": {}}).json()["id"]
        refused = client.post(f"/v1/sandboxes/{box}/extend", json=longer)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "denied"), refused.text
        with Sandbox.connect(served.address, token, id=box) as same, pytest.raises(Denied, match="limits"):
            same.extend(**longer)
        left = client.get(f"/v1/sandboxes/{box}/stats").json()["lifetime_left"]
        assert 0 < left <= 3600
        assert client.post(f"/v1/sandboxes/{box}/extend", json={"lifetime": 60}).status_code == 200
        assert served.http.post(f"/v1/sandboxes/{box}/extend", json=longer).status_code == 200  # scope host


def test_a_client_that_asked_for_a_short_life_may_lengthen_it_as_far_as_the_owner_allows(limited_life: Served) -> None:
    with limited_life.limited("create", "read", "kill") as client:
        box = client.post("/v1/sandboxes", json={"config": {"limits": {"lifetime": "1m"}}}).json()["id"]
        assert client.post(f"/v1/sandboxes/{box}/extend", json={"lifetime": 1800}).status_code == 200
        assert client.post(f"/v1/sandboxes/{box}/extend", json={"lifetime": 3700}).status_code == 403


# -- two at once


def test_changes_of_the_network_at_the_same_time_do_not_undo_each_other(served: Served) -> None:
    box = served.create(network={"allowed_hosts": ["*"]})
    names = [f"n{number}.example" for number in range(24)]

    def change(number: int) -> int:
        if number % 2:
            with served.limited("network", sandboxes=[box]) as client:
                changes = {"denied_hosts": [names[number]]}
                return client.patch(f"/v1/sandboxes/{box}/network", json=changes).status_code
        return served.http.post(f"/v1/sandboxes/{box}/allow", json={"host": names[number]}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(change, range(24))) == {200}
    now = served.http.get(f"/v1/sandboxes/{box}/network").json()["network"]
    assert set(names[1::2]) <= set(now["denied_hosts"])
    assert set(names[::2]) <= set(now["allowed_hosts"])


def test_another_sandbox_that_has_ended_is_404_like_one_that_never_was(served: Served) -> None:
    ended, own = served.create(), served.create()
    served.http.delete(f"/v1/sandboxes/{ended}")
    with served.limited("read,files", sandboxes=[own]) as client:
        for other in (ended, "vm-00000000"):
            answer = client.get(f"/v1/sandboxes/{other}/files?path=/tmp")
            assert answer.status_code == 404, answer.text


def test_a_name_cannot_end_with_a_newline(served: Served) -> None:
    answer = served.http.post("/v1/sandboxes", json={"config": {}, "name": "research\n"})
    assert answer.status_code == 400


def test_the_beginning_of_an_id_reveals_nothing_about_other_sandboxes(served: Served) -> None:
    own, other = served.create(), served.create()
    with served.limited("read", "exec", sandboxes=[own]) as client:
        for path in ("/v1/sandboxes/{}", "/v1/sandboxes/{}/stats"):
            for beginning in ("vm-", "vm", other[:5], other):
                said = client.get(path.format(beginning))
                assert other not in said.text or other == beginning
                # What there is of it is one sandbox, so a beginning names that one.
                assert said.status_code == (200 if own.startswith(beginning) else 404)
