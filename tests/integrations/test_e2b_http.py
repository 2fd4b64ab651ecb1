"""What E2B's clients send, by plain HTTP: who may do what, and what happens to requests that no client would send."""

from __future__ import annotations

import base64
import gzip
import hashlib
import itertools
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx
import pytest

from sandbox.errors import GuestError
from sandbox.server.e2b import contexts, control, filesystem, processes, snapshots, transfer
from sandbox.server.e2b.hosts import base_name, whole_id
from sandbox.server.e2b.watching import Lines
from sandbox.server.scopes import VERBS
from sandbox.server.tokens import Tokens
from tests.patience import until
from tests.server.serving import Served

STREAM = "application/connect+json"
SURFACES = (control, snapshots, contexts, transfer, filesystem, processes)  # the modules with E2B's routes


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("h"), "--port", "0", "--upload-limit", str(2**20))
    yield server
    server.end()


@cache
def plain(served: Served) -> httpx.Client:
    """A client without a token of ours; one for all, because making one takes long."""
    return served.client(None)


class Box:
    """A sandbox that was made as E2B's clients make one, and requests as they send them."""

    def __init__(self, served: Served, key: str | None = None, **asked: Any) -> None:
        self.served, self.key = served, key or served.token
        made = self.control("POST", "/v2/sandboxes", json={"templateID": "base", **asked})
        assert made.status_code == 201, made.text
        self.told = made.json()
        self.id, self.token = self.told["sandboxID"], self.told["envdAccessToken"]
        self.headers = {"E2b-Sandbox-Id": self.id, "X-Access-Token": self.token}

    def control(self, method: str, path: str, **more: Any) -> httpx.Response:
        return plain(self.served).request(method, path, headers={"X-API-Key": self.key}, **more)

    def send(self, method: str, path: str, headers: dict[str, Any] | None = None, **more: Any) -> httpx.Response:
        return plain(self.served).request(method, path, headers={**self.headers, **(headers or {})}, **more)

    def call(self, name: str, message: object, **headers: str) -> httpx.Response:
        return self.send("POST", f"/{name}", json=message, headers=headers)

    def stream(self, name: str, message: object) -> list[dict[str, Any]]:
        """Every message of the answer, the last one too."""
        answer = self.send("POST", f"/{name}", {"Content-Type": STREAM}, content=envelope(message))
        assert (answer.status_code, answer.headers["content-type"]) == (200, STREAM), answer.text
        return opened(answer.content)

    def run(self, command: str) -> tuple[int, str]:
        told = self.stream("process.Process/Start", shell(command))
        output = b"".join(
            base64.b64decode(one["event"]["data"].get("stdout", "")) for one in told if "data" in one.get("event", {})
        )
        return told[-2]["event"]["end"]["exitCode"], output.decode()


def shell(command: str) -> dict[str, Any]:
    return {"process": {"cmd": "/bin/bash", "args": ["-l", "-c", command]}, "stdin": False}


def envelope(message: object, flags: int = 0, length: int | None = None) -> bytes:
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return bytes([flags]) + (len(data) if length is None else length).to_bytes(4, "big") + data


def opened(data: bytes) -> list[dict[str, Any]]:
    found = []
    while data:
        length = int.from_bytes(data[1:5], "big")
        found.append(json.loads(data[5 : 5 + length]))
        data = data[5 + length :]
    return found


@contextmanager
def running(box: Box, command: str) -> Iterator[int]:
    """A command that was started and whose starter has left."""
    with box.served.client(None) as client:
        given = {**box.headers, "Content-Type": STREAM}
        with client.stream("POST", "/process.Process/Start", headers=given, content=envelope(shell(command))) as answer:
            first = next(answer.iter_bytes())
    yield int(opened(first)[0]["event"]["start"]["pid"])


@pytest.fixture(scope="module")
def box(served: Served) -> Box:
    return Box(served, timeout=600)


@pytest.fixture(scope="module")
def other(served: Served) -> Box:
    return Box(served, timeout=600)


# -- what works


def test_a_command_streams_its_output_and_its_exit_code(box: Box) -> None:
    assert box.run("echo hello; exit 3") == (3, "hello\n")
    assert box.stream("process.Process/Start", shell("true"))[-1] == {}


def test_commands_begin_in_home_user_which_is_the_workspace(box: Box) -> None:
    assert box.run("pwd; echo x > /home/user/here; cat here")[1] == "/home/user\nx\n"


def test_a_command_runs_on_when_its_starter_leaves_and_others_join_and_end_it(box: Box) -> None:
    with running(box, "echo begun; exec sleep 600") as pid:
        listed = box.call("process.Process/List", {}).json()["processes"]
        assert [one["config"]["cmd"] for one in listed if one["pid"] == pid] == ["/bin/bash"]
        ended = box.call("process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
        assert ended.status_code == 200, ended.text
        assert pid not in [one["pid"] for one in box.call("process.Process/List", {}).json()["processes"]]


def test_leaving_an_endless_output_stops_nothing_and_one_can_return(box: Box) -> None:
    with running(box, "exec yes") as pid:
        with box.served.client(None) as client:
            given = {**box.headers, "Content-Type": STREAM}
            asked = envelope({"process": {"pid": pid}})
            with client.stream("POST", "/process.Process/Connect", headers=given, content=asked) as answer:
                assert b"start" in next(answer.iter_bytes())
        killed = box.call("process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
        assert killed.status_code == 200
    assert box.run("echo still here") == (0, "still here\n")


def test_files_go_both_ways_and_gzip_is_unpacked(box: Box) -> None:
    packed = {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
    made = box.send("POST", "/files?path=sub/packed.txt", packed, content=gzip.compress(b"unpacked"))
    assert made.json() == [{"name": "packed.txt", "path": "/home/user/sub/packed.txt", "type": "file"}], made.text
    form = [("file", ("one.txt", b"1")), ("file", ("sub/two.txt", b"22"))]
    assert [one["path"] for one in box.send("POST", "/files", files=form).json()] == [
        "/home/user/one.txt",
        "/home/user/sub/two.txt",
    ]
    assert box.send("GET", "/files", params={"path": "sub/packed.txt"}).text == "unpacked"
    assert box.send("GET", "/files", params={"path": "~/one.txt"}).text == "1"
    assert box.send("GET", "/files", params={"path": "nothing"}).status_code == 404


def test_a_listing_shows_names_that_are_no_text(box: Box) -> None:
    box.run(r"mkdir -p odd && touch odd/$'\xff\xfe' && ln -s nowhere odd/link")
    told = box.call("filesystem.Filesystem/ListDir", {"path": "odd", "depth": 1})
    assert told.status_code == 200, told.text
    kinds = {one["name"]: one["type"] for one in told.json()["entries"]}
    assert kinds == {"��": "FILE_TYPE_FILE", "link": "FILE_TYPE_SYMLINK"}


def test_a_link_that_leads_nowhere_and_an_impossible_date_break_no_listing(box: Box) -> None:
    made = (
        "mkdir broken; cd broken; ln -s loop loop; touch old; python3 -c 'import os; os.utime(\"old\", (-9e10, -9e10))'"
    )
    box.run(made)
    told = box.call("filesystem.Filesystem/ListDir", {"path": "broken", "depth": 1})
    assert told.status_code == 200, told.text
    types = {one["name"]: one["type"] for one in told.json()["entries"]}
    assert types == {"loop": "FILE_TYPE_SYMLINK", "old": "FILE_TYPE_FILE"}


def test_code_keeps_its_state_and_contexts_are_apart(box: Box) -> None:
    def run(**asked: Any) -> list[dict[str, Any]]:
        answer = box.send("POST", "/execute", json=asked)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    run(code="x = 40")
    told = run(code="print('out')\nx + 2")
    assert [one["text"] for one in told if one["type"] in ("stdout", "result")] == ["out\n", "42"]
    made = box.send("POST", "/contexts", json={"language": "python"}).json()
    assert next(one for one in run(code="x", context_id=made["id"]) if one["type"] == "error")["name"] == "NameError"
    one_run = run(code="import os; os.environ.get('ONCE')", env_vars={"ONCE": 'it\'s "1"'})
    assert [one["text"] for one in one_run if one["type"] == "result"] == ['it\\\'s "1"']
    assert [one for one in run(code="os.environ.get('ONCE')") if one["type"] == "result"] == []
    assert box.send("POST", "/execute", json={"code": "1", "language": "java"}).status_code == 400


def entry_of(box: Box, path: str) -> dict[str, Any]:
    entry: dict[str, Any] = box.call("filesystem.Filesystem/Stat", {"path": path}).json()["entry"]
    return entry


def test_metadata_of_a_file_is_an_attribute_that_programs_inside_see_and_set(box: Box) -> None:
    headers = {"X-Metadata-Author": "me", "X-Metadata-purpose": "a test"}
    (told,) = box.send("POST", "/files?path=meta.txt", headers, content=b"x").json()
    assert told["metadata"] == {"author": "me", "purpose": "a test"}
    code = "import os; print(os.getxattr('meta.txt', 'user.e2b.author')); os.setxattr('meta.txt', 'user.e2b.n', b'1')"
    assert box.run(f'python3 -c "{code}"') == (0, "b'me'\n")
    entry = entry_of(box, "meta.txt")
    assert entry["metadata"] == {"author": "me", "n": "1", "purpose": "a test"}
    moved = box.call("filesystem.Filesystem/Move", {"source": "meta.txt", "destination": "moved.txt"}).json()["entry"]
    listed = box.call("filesystem.Filesystem/ListDir", {"path": ""}).json()["entries"]
    (found,) = [one for one in listed if one["name"] == "moved.txt"]
    assert moved["metadata"] == found["metadata"] == entry["metadata"]
    (again,) = box.send("POST", "/files?path=moved.txt", content=b"y").json()
    assert "metadata" not in again
    assert "metadata" not in entry_of(box, "moved.txt")


def test_metadata_that_a_program_inside_made_up_is_bounded_and_readable(box: Box) -> None:
    box.send("POST", "/files?path=made-up.txt", content=b"x")
    code = (
        "import os; p = 'made-up.txt'; os.setxattr(p, 'user.e2b.esc', b'\\x1b[31m');"
        "os.setxattr(p, 'user.e2b.A B', b'x'); os.setxattr(p, 'user.other', b'x'); os.setxattr(p, 'user.e2b.ok', b'1')"
    )
    assert box.run(f'python3 -c "{code}"')[0] == 0
    assert entry_of(box, "made-up.txt")["metadata"] == {"ok": "1"}


@pytest.mark.parametrize("headers", [{"X-Metadata-": "x"}, {"X-Metadata-a": "x" * 4097}, {"X-Metadata-a": "\u00e4"}])
def test_wrong_metadata_is_refused_before_anything_is_written(box: Box, headers: dict[str, str]) -> None:
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    assert box.send("POST", "/files?path=never.txt", encoded, content=b"x").status_code == 400
    assert box.send("GET", "/files", params={"path": "never.txt"}).status_code == 404


def test_a_sandbox_may_be_paused_when_its_time_is_over_and_wake_when_it_is_used(served: Served) -> None:
    asleep = Box(served, timeout=600, autoPause=True)
    awake = Box(served, timeout=600, autoPause=True, autoResume={"enabled": True})
    for box in (asleep, awake):
        box.run("echo kept > /tmp/kept")
        assert box.control("POST", f"/sandboxes/{box.id}/timeout", json={"timeout": 1}).status_code == 204
    until(lambda: all(_state(box) == "paused" for box in (asleep, awake)))
    assert [awake.send("GET", "/health").status_code for _ in range(2)] == [502, 502]  # asking wakes nobody
    assert asleep.send("GET", "/files", params={"path": "/tmp/kept"}).status_code == 502
    assert awake.send("GET", "/files", params={"path": "/tmp/kept"}).text == "kept\n"
    assert (_state(asleep), _state(awake)) == ("paused", "running")
    told = awake.control("GET", f"/sandboxes/{awake.id}").json()
    assert told["lifecycle"] == {"autoResume": True, "onTimeout": "pause"}
    assert asleep.control("POST", f"/sandboxes/{asleep.id}/connect", json={"timeout": 600}).status_code == 201
    assert asleep.run("cat /tmp/kept") == (0, "kept\n")
    for box in (asleep, awake):
        assert box.control("DELETE", f"/sandboxes/{box.id}").status_code == 204


def _state(box: Box) -> str:
    return str(box.control("GET", f"/sandboxes/{box.id}").json()["state"])


def test_a_pause_at_the_timeout_does_not_evade_the_owners_limit(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("h")
    (home / "config.yaml").write_text("limits: {lifetime: 5s}\n")
    server = Served(home)
    try:
        with server.client(None) as client:
            client.headers["X-API-Key"] = server.new_token("create,read,exec,files,kill")
            asked = {"templateID": "base", "autoPause": True}
            assert client.post("/v2/sandboxes", json={**asked, "timeout": 60}).status_code == 403
            made = client.post("/v2/sandboxes", json={**asked, "timeout": 1}).json()["sandboxID"]
            assert client.post(f"/sandboxes/{made}/connect", json={"timeout": 60}).status_code in (403, 404)
            until(lambda: client.get(f"/sandboxes/{made}").status_code == 404)
    finally:
        server.end()


FIGURE = """
import sys, types
charts = sys.modules["e2b_charts"] = types.ModuleType("e2b_charts")
charts.chart_figure_to_dict = lambda figure: {"type": "line", "title": figure.title}
class Figure:
    __module__ = "matplotlib.figure"
    title = "one"
Figure()
"""


def test_a_figure_is_also_shown_as_data(box: Box) -> None:
    said = [json.loads(line) for line in box.send("POST", "/execute", json={"code": FIGURE}).text.splitlines()]
    (shown,) = [one for one in said if one["type"] == "result"]
    assert shown["chart"] == {"type": "line", "title": "one"}
    left = [json.loads(line) for line in box.send("POST", "/execute", json={"code": "dir()"}).text.splitlines()]
    (names,) = [one["text"] for one in left if one["type"] == "result"]
    assert "_add_forms" not in names


def test_a_watcher_returns_all_that_happened_until_it_is_asked(box: Box) -> None:
    box.run("mkdir -p watched/deep")
    made = box.call("filesystem.Filesystem/CreateWatcher", {"path": "watched", "recursive": True})
    assert made.status_code == 200, made.text
    box.run("echo 1 > watched/deep/new")
    told = box.call("filesystem.Filesystem/GetWatcherEvents", made.json()).json()["events"]
    assert {"name": "deep/new", "type": "EVENT_TYPE_CREATE"} in told
    assert box.call("filesystem.Filesystem/RemoveWatcher", made.json()).status_code == 200
    assert box.call("filesystem.Filesystem/GetWatcherEvents", made.json()).status_code == 404


def test_a_port_has_a_name_and_the_program_there_sees_no_token(box: Box) -> None:
    script = (
        "import http.server as h\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        to = self.path == '/from'\n"
        "        self.send_response(302 if to else 200)\n"
        "        if to: self.send_header('Location', '/to')\n"
        "        self.end_headers(); self.wfile.write(str(self.headers).encode())\n"
        "s = h.HTTPServer(('127.0.0.1', 0), H); print(s.server_port, flush=True); s.serve_forever()\n"
    )
    asked = {"process": {"cmd": "python3", "args": ["-c", script]}, "stdin": False}
    with box.served.client(None) as client:
        given = {**box.headers, "Content-Type": STREAM}
        with client.stream("POST", "/process.Process/Start", headers=given, content=envelope(asked)) as answer:
            said, pieces = b"", answer.iter_bytes()
            while b'"data"' not in said:
                said += next(pieces)
            port = int(base64.b64decode(opened(said)[1]["event"]["data"]["stdout"]))
            name = {"Host": f"{port}-{box.id}.localhost"}
            traffic = {"E2B-Traffic-Access-Token": box.told["trafficAccessToken"]}
            with box.served.client(None) as visitor:
                assert visitor.get("/", headers=name).status_code == 401
                seen = visitor.get("/", headers={**name, **traffic})
                assert seen.status_code == 200 and box.token not in seen.text, seen.text
                assert visitor.get("/from", headers={**name, **traffic}).headers["location"] == "/to"
                key = visitor.get("/", headers={**name, "X-API-Key": box.key})
                assert key.status_code == 200 and box.key not in key.text
                assert visitor.get("/", headers={"Host": f"{port}-{box.id}.evil.example", **traffic}).status_code == 421


def test_the_list_is_filtered_and_comes_in_pages(served: Served) -> None:
    made = [Box(served, metadata={"kind": "page", "n": str(number)}) for number in range(3)]
    asked = {"metadata": "kind=page", "limit": "2", "order": "asc"}
    first = made[0].control("GET", "/v2/sandboxes", params=asked)
    following = made[0].control("GET", "/v2/sandboxes", params={**asked, "nextToken": first.headers["x-next-token"]})
    found = [one["sandboxID"] for one in (*first.json(), *following.json())]
    assert found == [one.id for one in made] and "x-next-token" not in following.headers
    assert (
        made[0].control("GET", "/v2/sandboxes", params={"metadata": "kind=page&n=1"}).json()[0]["sandboxID"]
        == made[1].id
    )
    for one in made:
        assert one.control("DELETE", f"/sandboxes/{one.id}").status_code == 204
        assert one.send("GET", "/health").status_code == 502
        assert one.control("DELETE", f"/sandboxes/{one.id}").status_code == 404


def test_the_files_of_a_sandbox_end_with_it(served: Served) -> None:
    box = Box(served)
    box.run("echo kept > file")
    layers = served.home / "vms" / box.id
    assert layers.exists()
    assert box.control("DELETE", f"/sandboxes/{box.id}").status_code == 204
    assert not layers.exists()


def test_a_snapshot_stays_when_its_sandbox_has_ended(served: Served) -> None:
    box = Box(served)
    box.run("echo kept > file")
    name = box.control("POST", f"/sandboxes/{box.id}/snapshots", json={}).json()["snapshotID"]
    box.control("DELETE", f"/sandboxes/{box.id}")
    later = Box(served, templateID=name)
    assert later.run("cat /home/user/file") == (0, "kept\n")
    later.control("DELETE", f"/sandboxes/{later.id}")
    assert later.control("DELETE", f"/templates/{name}").status_code == 204


# -- who may


ROUTES = [
    ("GET", "/v2/sandboxes"), ("POST", "/v2/sandboxes"), ("GET", "/sandboxes/vm-00000000"), ("GET", "/files"),
    ("POST", "/process.Process/List"), ("POST", "/filesystem.Filesystem/Stat"), ("POST", "/execute"),
    ("GET", "/contexts"), ("GET", "/health"), ("GET", "/snapshots"), ("POST", "/v3/templates"),
]  # fmt: skip


def test_without_a_credential_there_is_nothing(served: Served, box: Box) -> None:
    with served.client(None) as stranger:
        for method, path in ROUTES:
            told = {"E2b-Sandbox-Id": box.id}
            assert stranger.request(method, path, headers=told, json={}).status_code == 401, path
        guess = {"E2b-Sandbox-Id": box.id, "X-Access-Token": "sbe_00000000_" + "0" * 64}
        assert stranger.get("/health", headers=guess).status_code == 401


def test_a_key_may_have_their_prefix(served: Served) -> None:
    with served.client(None) as client:
        assert client.get("/v2/sandboxes", headers={"X-API-Key": f"e2b_{served.token}"}).status_code == 200


def test_an_access_token_opens_its_own_sandbox_alone(box: Box, other: Box) -> None:
    assert box.send("GET", "/health").status_code == 204
    for told in ({"E2b-Sandbox-Id": other.id}, {"Host": f"49983-{other.id}.localhost"}):
        assert box.send("GET", "/health", told).status_code == 401
        assert box.send("GET", "/files?path=x", told).status_code == 401
    answer = box.send(
        "POST",
        "/process.Process/Start",
        {"E2b-Sandbox-Id": other.id, "Content-Type": STREAM},
        content=envelope(shell("true")),
    )
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "path", ["/v1/sandboxes", "/v1/me", "/v2/sandboxes", "/sandboxes/{id}", "/v1/sandboxes/{id}/stats", "/metrics"]
)
def test_an_access_token_is_good_for_nothing_else(box: Box, path: str) -> None:
    assert box.send("GET", path.format(id=box.id)).status_code == 401


def test_a_revoked_key_takes_its_access_tokens_with_it(served: Served) -> None:
    tokens = Tokens(str(served.home / "server"))
    key, made = tokens.new(frozenset(["create", "read", "exec", "files", "kill"]))
    box = Box(served, key)
    assert box.run("echo 1") == (0, "1\n")
    tokens.revoke(made.id)
    assert box.send("GET", "/health").status_code == 401
    assert box.control("GET", "/v2/sandboxes").status_code == 401


def test_scopes_hold(served: Served, box: Box) -> None:
    reader = served.new_token("read")
    told = plain(served).post(f"/sandboxes/{box.id}/connect", headers={"X-API-Key": reader}, json={}).json()
    given = {"E2b-Sandbox-Id": box.id, "X-Access-Token": told["envdAccessToken"]}
    assert box.send("GET", "/health", given).status_code == 204
    refused = box.send(
        "POST", "/process.Process/Start", {**given, "Content-Type": STREAM}, content=envelope(shell("true"))
    )
    assert opened(refused.content) == [
        {"error": {"code": "permission_denied", "message": opened(refused.content)[0]["error"]["message"]}}
    ]
    assert box.send("GET", "/files?path=x", given).status_code == 403
    assert box.send("POST", "/execute", given, json={"code": "1"}).status_code == 403
    for method, path in [
        ("DELETE", ""),
        ("POST", "/pause"),
        ("POST", "/timeout"),
        ("POST", "/snapshots"),
        ("POST", "/fork"),
    ]:
        answer = plain(served).request(method, f"/sandboxes/{box.id}{path}", headers={"X-API-Key": reader}, json={})
        assert answer.status_code == 403, path
    asked = plain(served).post("/v2/sandboxes", headers={"X-API-Key": reader}, json={"templateID": "base"})
    assert asked.status_code == 403


def test_a_key_for_one_sandbox_sees_no_other(served: Served, box: Box, other: Box) -> None:
    narrow = {"X-API-Key": served.new_token("read,exec,files,kill", sandboxes=[box.id])}
    with served.client(None) as client:
        assert [one["sandboxID"] for one in client.get("/v2/sandboxes", headers=narrow).json()] == [box.id]
        for method, path in [
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/connect"),
            ("POST", "/pause"),
            ("GET", "/metrics"),
        ]:
            answer = client.request(method, f"/sandboxes/{other.id}{path}", headers=narrow)
            assert answer.status_code == 404, path
        assert client.get("/health", headers={**narrow, "E2b-Sandbox-Id": other.id}).status_code == 502


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for one test: after many wrong tokens it refuses everybody for a while."""
    server = Served(tmp_path_factory.mktemp("h"), "--port", "0")
    yield server
    server.end()


@pytest.mark.parametrize("by", ["a key", "an access token"])
def test_no_route_brings_who_may_use_one_sandbox_near_another(alone: Served, by: str) -> None:
    served, box, other = alone, Box(alone, timeout=600), Box(alone, timeout=600)
    assert other.run("echo kept > near") == (0, "")
    context = other.send("POST", "/contexts", json={}).json()["id"]
    snapshot = other.control("POST", f"/sandboxes/{other.id}/snapshots", json={}).json()["snapshotID"]
    every = ",".join(sorted(set(VERBS) - {"sign", "approve"}))
    key = {"X-API-Key": served.new_token(every, sandboxes=[box.id])} if by == "a key" else {"X-Access-Token": box.token}
    names = {"id": other.id, "context": context, "name": snapshot}
    asked = {"path": "near", "oldPath": "near", "newPath": "far", "templateID": snapshot, "context_id": context}
    bodies = {"application/json": json.dumps({**asked, "code": "1"}).encode(), STREAM: envelope(asked)}
    tried = 0
    for route in (one for module in SURFACES for one in module.ROUTES):
        for path, method, kind in itertools.product(route.paths, route.http_methods, bodies):
            whole = re.sub(r"{(\w+):str}", lambda found: names[found[1]], path)
            headers = {**key, "E2b-Sandbox-Id": other.id, "Content-Type": kind}
            told = plain(served).request(method, whole, headers=headers, params={"path": "near"}, content=bodies[kind])
            refused = not told.is_success or b'"error"' in told.content  # a stream says it in its last message
            assert refused or not any(one in told.text for one in (*names.values(), "kept")), (method, whole, told.text)
            tried += 1
    assert tried > 60
    assert other.run("cat near; ls") == (0, "kept\nnear\n")
    assert context in other.send("GET", "/contexts").text and snapshot in other.control("GET", "/snapshots").text


@pytest.mark.parametrize("id", ["vm-", "vm", "v", "..", "%2e%2e", "..%2f..", "vm-*", "vm-00000000", "", "x" * 200])
def test_only_a_whole_id_names_a_sandbox(box: Box, id: str) -> None:
    answer = box.control("DELETE", f"/sandboxes/{id}")
    assert answer.status_code in (404, 405, 400), answer.text
    assert box.control("DELETE", f"/sandboxes/{box.id[:-1]}").status_code == 404
    with box.served.client(None) as client:
        told = {"X-API-Key": box.key, "E2b-Sandbox-Id": id}
        assert client.get("/health", headers=told).status_code == 502
    assert box.send("GET", "/health").status_code == 204


def test_a_credential_that_is_there_twice_is_refused(box: Box) -> None:
    with box.served.client(None) as client:
        twice = [("X-Access-Token", box.token), ("X-Access-Token", "x"), ("E2b-Sandbox-Id", box.id)]
        assert client.get("/health", headers=twice).status_code == 400


def test_a_remote_client_cannot_live_longer_or_reach_more_than_the_owner_allows(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("h")
    (home / "config.yaml").write_text("limits: {lifetime: 1h}\nnetwork: {allowed_hosts: [example.org]}\n")
    server = Served(home)
    try:
        key = server.new_token("create,read,exec,files,kill,network")
        with server.client(None) as client:
            client.headers["X-API-Key"] = key

            def made(**asked: Any) -> httpx.Response:
                return client.post("/v2/sandboxes", json={"templateID": "base", **asked})

            assert made(timeout=7200).status_code == 403
            assert made(network={"allowOut": ["other.example"]}).status_code == 403
            assert made(allow_internet_access=False).status_code == 201
            box = made(timeout=60, network={"allowOut": ["example.org"], "denyOut": ["0.0.0.0/0"]}).json()["sandboxID"]
            assert client.post(f"/sandboxes/{box}/timeout", json={"timeout": 7200}).status_code == 403
            assert client.post(f"/sandboxes/{box}/timeout", json={"timeout": 1800}).status_code == 204
            assert client.put(f"/sandboxes/{box}/network", json={"allowOut": ["other.example"]}).status_code == 403
            assert client.put(f"/sandboxes/{box}/network", json={"allow_internet_access": False}).status_code == 204
            assert made(templateID="some-snapshot").status_code == 403
    finally:
        server.end()


def test_a_fork_that_would_live_longer_than_the_owner_allows_leaves_no_sandbox(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("h")
    (home / "config.yaml").write_text("limits: {lifetime: 1h}\n")
    server = Served(home)
    try:
        with server.client(None) as client:
            client.headers["X-API-Key"] = server.new_token("create,read,exec,files")
            box = client.post("/v2/sandboxes", json={"templateID": "base", "timeout": 600}).json()["sandboxID"]
            assert client.post(f"/sandboxes/{box}/fork", json={"timeout": 7200, "count": 2}).status_code == 403
            assert [one["sandboxID"] for one in client.get("/v2/sandboxes").json()] == [box]
            assert client.post(f"/sandboxes/{box}/fork", json={"timeout": 600}).status_code == 201
            assert len(client.get("/v2/sandboxes").json()) == 2
    finally:
        server.end()


def test_there_is_one_user(box: Box) -> None:
    root = "Basic " + base64.b64encode(b"root:").decode()
    told = box.send(
        "POST",
        "/process.Process/Start",
        {"Content-Type": STREAM, "Authorization": root},
        content=envelope(shell("true")),
    )
    assert opened(told.content)[0]["error"]["code"] == "unauthenticated"
    assert box.send("GET", "/files", params={"path": "x", "username": "root"}).status_code == 401


# -- signed URLs


def signed(box: Box, path: str, operation: str, expires: int | None = None, user: str = "") -> dict[str, str]:
    raw = f"{path}:{operation}:{user}:{box.token}" + (f":{expires}" if expires is not None else "")
    digest = base64.b64encode(hashlib.sha256(raw.encode()).digest()).decode().rstrip("=")
    told = {"path": path, "signature": f"v1_{digest}", **({"username": user} if user else {})}
    return told if expires is None else {**told, "signature_expiration": str(expires)}


def test_a_signed_url_is_good_for_that_file_and_that_direction(served: Served, box: Box) -> None:
    later = int(time.time()) + 600
    with served.client(None) as client:
        put = client.post("/files", params=signed(box, "signed.txt", "write"), files={"file": ("any", b"by url")})
        assert put.status_code == 200, put.text
        assert client.get("/files", params=signed(box, "signed.txt", "read", later)).text == "by url"
        wrong = [
            signed(box, "signed.txt", "write"),
            {**signed(box, "signed.txt", "read"), "path": "other.txt"},
            {**signed(box, "signed.txt", "read", later), "signature_expiration": str(later + 1)},
            {**signed(box, "signed.txt", "read"), "username": "user"},
            {**signed(box, "signed.txt", "read"), "signature": "v1_" + "A" * 43},
            {**signed(box, "signed.txt", "read"), "signature": "v1_"},
        ]
        for one in wrong:
            assert client.get("/files", params=one).status_code == 401, one
        gone = client.get("/files", params=signed(box, "signed.txt", "read", 1000))
        assert (gone.status_code, gone.json()) == (401, {"code": 401, "message": "signature is already expired"})
        assert client.get("/contexts", params=signed(box, "signed.txt", "read")).status_code == 401


# -- what no client would send


MALFORMED_STREAMS = {
    "nothing": (b"", "invalid_argument"),
    "half a head": (b"\0\0\0", "invalid_argument"),
    "half a message": (envelope(shell("true"))[:-1], "invalid_argument"),
    "two messages": (envelope(shell("true")) * 2, "invalid_argument"),
    "compressed": (envelope(b"{}", flags=1), "unimplemented"),
    "an end": (envelope(b"{}", flags=2), "invalid_argument"),
    "a huge length": (envelope(b"", length=2**32 - 1), "resource_exhausted"),
    "no JSON": (envelope(b"not json"), "invalid_argument"),
    "deep JSON": (envelope(b"[" * 100_000), "invalid_argument"),
    "another type": (envelope(b'{"process": {"cmd": 1}}'), "invalid_argument"),
    "a NUL": (envelope({"process": {"cmd": "a\0b"}}), "invalid_argument"),
    "no variable": (envelope({"process": {"cmd": "true", "envs": {"A=B": "1"}}}), "invalid_argument"),
    "no program": (envelope({"process": {"cmd": "/no/such/program"}}), "invalid_argument"),
    "no directory": (envelope({"process": {"cmd": "true", "cwd": "/no/such/place"}}), "invalid_argument"),
    "no terminal": (
        envelope({"process": {"cmd": "true"}, "pty": {"size": {"rows": 0, "cols": 9}}}),
        "invalid_argument",
    ),
}


@pytest.mark.parametrize("name", MALFORMED_STREAMS)
def test_a_malformed_stream_is_an_error_and_nothing_more(box: Box, name: str) -> None:
    body, code = MALFORMED_STREAMS[name]
    answer = box.send("POST", "/process.Process/Start", {"Content-Type": STREAM}, content=body)
    assert answer.status_code == 200, answer.text
    assert opened(answer.content)[-1]["error"]["code"] == code, answer.text


JSON = {"Content-Type": "application/json"}
MALFORMED_CALLS = {
    "protobuf": ({"Content-Type": "application/proto"}, b"\0", 501),
    "compressed": ({**JSON, "Content-Encoding": "gzip"}, gzip.compress(b"{}"), 501),
    "another version": ({**JSON, "Connect-Protocol-Version": "2"}, b"{}", 400),
    "half": (JSON, b"{", 400),
    "another type": (JSON, b'{"path": 1}', 400),
    "a long path": (JSON, b'{"path": "' + b"x" * 5000 + b'"}', 400),
    "a huge message": (JSON, b'{"path": "' + b"x" * (9 * 2**20) + b'"}', 429),
}


@pytest.mark.parametrize("name", MALFORMED_CALLS)
def test_a_malformed_call_is_an_error_and_nothing_more(box: Box, name: str) -> None:
    headers, body, status = MALFORMED_CALLS[name]
    assert box.send("POST", "/filesystem.Filesystem/Stat", headers, content=body).status_code == status


def test_a_deadline_that_is_not_a_number_is_refused(box: Box) -> None:
    given = {"Content-Type": STREAM, "Connect-Timeout-Ms": "soon"}
    told = box.send("POST", "/process.Process/Start", given, content=envelope(shell("true")))
    assert opened(told.content)[0]["error"]["code"] == "invalid_argument"


def test_a_command_that_is_late_is_killed_and_the_stream_says_so(box: Box) -> None:
    given = {"Content-Type": STREAM, "Connect-Timeout-Ms": "200"}
    told = box.send("POST", "/process.Process/Start", given, content=envelope(shell("sleep 600")))
    assert opened(told.content)[-1]["error"]["code"] == "deadline_exceeded"


def test_an_upload_unpacks_to_no_more_than_uploads_may_have(box: Box) -> None:
    bomb = gzip.compress(b"\0" * (64 * 2**20))
    packed = {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
    assert len(bomb) < 2**20
    assert box.send("POST", "/files?path=bomb", packed, content=bomb).status_code == 413
    form = [("file", (f"part{number}", b"x" * 400_000)) for number in range(3)]
    assert box.send("POST", "/files", files=form).status_code == 413


FORM = {"Content-Type": "multipart/form-data; boundary=b"}
RAW = {"Content-Type": "application/octet-stream"}
PART = b'--b\r\nContent-Disposition: form-data; name="file"'
MALFORMED_UPLOADS = {
    "no boundary": ({"Content-Type": "multipart/form-data"}, b"x"),
    "no form": (FORM, b"no form"),
    "half a form": (FORM, PART + b'; filename="a"\r\n\r\nx'),
    "no file name": (FORM, PART + b"\r\n\r\nx\r\n--b--\r\n"),
    "no path": (RAW, b"no path"),
    "not packed": ({**RAW, "Content-Encoding": "gzip"}, b"not packed"),
}


@pytest.mark.parametrize("name", MALFORMED_UPLOADS)
def test_a_malformed_upload_is_an_error(box: Box, name: str) -> None:
    headers, body = MALFORMED_UPLOADS[name]
    assert box.send("POST", "/files", headers, content=body).status_code == 400


def test_a_path_cannot_leave_what_a_tenant_sees(box: Box) -> None:
    secret = box.served.home / "server" / "tokens.json"
    assert secret.exists()
    for path in (
        str(secret),
        "../../../../../../../" + str(secret),
        f"/home/user/../..{secret}",
        f"/proc/1/root{secret}",
    ):
        assert box.send("GET", "/files", params={"path": path}).status_code in (403, 404), path
    box.run(f"ln -sf {secret} out")
    assert box.send("GET", "/files", params={"path": "out"}).status_code in (403, 404)
    assert box.send("POST", "/files?path=/etc/e2b-was-here", content=b"x").status_code in (403, 404)


def test_there_is_an_end_to_contexts_and_watchers(served: Served) -> None:
    box = Box(served)
    answers = [box.send("POST", "/contexts", json={}).status_code for _ in range(66)]
    assert answers[0] == 201 and answers[-1] == 429
    assert box.control("DELETE", f"/sandboxes/{box.id}").status_code == 204


@pytest.mark.parametrize(
    "asked",
    [
        {"mcp": {"x": {}}}, {"iam": {"tokens": {}, "x": 1}}, {"volumeMounts": [{"name": "a", "path": "/a"}]},
        {"network": {"denyOut": ["8.8.8.8"]}}, {"network": {"rules": {"a": []}}},
        {"network": {"allowPublicTraffic": True}}, {"autoPause": True, "autoPauseMemory": False}, {"timeout": -1},
        {"metadata": {"a": 1}},
    ],
)  # fmt: skip
def test_what_does_not_exist_is_refused_by_name(box: Box, asked: dict[str, Any]) -> None:
    answer = box.control("POST", "/v2/sandboxes", json={"templateID": "base", **asked})
    assert answer.status_code == 400 and answer.json()["message"], answer.text


def test_an_unknown_template_is_not_found_and_templates_are_not_built(box: Box) -> None:
    assert box.control("POST", "/v2/sandboxes", json={"templateID": "no-such-one"}).status_code == 404
    assert box.control("POST", "/v3/templates", json={}).status_code == 501


# -- pieces


def test_names_of_hosts_are_read_one_way() -> None:
    assert base_name("8080-vm-0a1b2c3d.localhost") == "localhost"
    assert base_name("api.example.org") == "example.org"
    assert base_name("8080-vm-0a1b2c3d.api.example.org") == "api.example.org"
    assert base_name("evil-8080-vm-0a1b2c3d.localhost") == "evil-8080-vm-0a1b2c3d.localhost"
    assert (
        whole_id("vm-0a1b2c3d")
        and not whole_id("vm-0a1b2c3d/..")
        and not whole_id("vm-0A1B2C3D")
        and not whole_id("vm-\n")
    )


LIES = {
    "no JSON": b"no json\n",
    "a list": b"[]\n",
    "a mark below 0": b'{"mark": -1}\n',
    "another type": b'{"type": "BOOM", "name": "x"}\n',
    "a field too many": b'{"extra": 1}\n',
    "no end": b"x" * 70_000,
}


@pytest.mark.parametrize("name", LIES)
def test_a_watcher_that_lies_is_not_believed(name: str) -> None:
    lines = Lines()
    lines.add(LIES[name])
    with pytest.raises(GuestError):
        list(lines.take())
