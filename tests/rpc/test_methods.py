"""Every method that tells of a sandbox or changes it, over `sandbox --rpc` and over the socket of a registry entry."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.registry.registry import find
from sandbox.rpc import errors
from tests.rpc.raw import Raw, serving
from tests.sandboxes import address

pytestmark = pytest.mark.walls


class OnSocket(Raw):
    """The same conversation on the socket of a registry entry."""

    def __init__(self, path: Path) -> None:
        self.line = socket.socket(socket.AF_UNIX)
        with address(path) as name:
            self.line.connect(name)
        self.file = self.line.makefile("rb")
        self.events: list[dict[str, Any]] = []

    def send(self, data: bytes | dict[str, Any] | list[Any]) -> None:
        self.line.sendall(data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        while True:
            line = self.file.readline()
            assert line, "the server has ended"
            message: dict[str, Any] = json.loads(line)
            if message.get("method") != "event":
                return message
            self.events.append(message["params"])

    def close(self) -> None:
        self.file.close()
        self.line.close()


Create = Callable[..., Raw]


@pytest.fixture(params=["stdio", "socket"])
def create(request: pytest.FixtureRequest, rpc: list[str], home: Path) -> Iterator[Create]:
    """Creates a sandbox and returns the connection to talk about it: the creator's own, or one to its socket."""
    with serving(rpc) as server, contextmanager(closing_all)() as opened:

        def made(**config: Any) -> Raw:
            answer = server.ask("create", **config)
            assert "result" in answer, answer
            if request.param == "stdio":
                return server
            opened.append(OnSocket(home / "vms" / answer["result"]["id"] / "socket"))
            return opened[-1]

        yield made


def closing_all() -> Iterator[list[OnSocket]]:
    opened: list[OnSocket] = []
    yield opened
    for one in opened:
        one.close()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def start(raw: Raw, method: str, id: int | str, **params: Any) -> None:
    raw.send({"jsonrpc": "2.0", "method": method, "params": params, "id": id})


def until(raw: Raw, id: int | str, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first answer of a request that is meant. Those of other requests are kept for who asks for them."""
    kept: list[dict[str, Any]] = raw.__dict__.setdefault("kept", [])
    for at, answer in enumerate(kept):
        if answer["id"] == id and ("error" in answer or found(answer["result"])):
            return kept.pop(at)
    while True:
        answer = raw.receive()
        if answer["id"] == id and ("error" in answer or found(answer["result"])):
            return answer
        if answer["id"] != id:
            kept.append(answer)


# -- what it is

GREETS = """
import socket
s = socket.create_server(('127.0.0.1', 8000))
print('up', flush=True)
s.accept()[0].sendall(b'hi')
"""


def test_an_attached_client_learns_what_create_answered(rpc: list[str], home: Path) -> None:
    with serving(rpc) as server:
        created = server.ask("create", env={"GREETING": "hello"}, network={"publish": ["0:80"]})["result"]
        assert {"id", "engine", "directory", "env", "ports"} <= created.keys()
        assert created["env"] == {"GREETING": "hello"}
        with closing(OnSocket(home / "vms" / created["id"] / "socket")) as other:
            assert other.ask("info")["result"] == created
        inside = server.ask("exec", command="pwd")["result"]["stdout"]
        assert base64.b64decode(inside).decode().strip() == created["directory"]


def test_a_published_port_0_is_reported_with_its_real_number_and_works(create: Create) -> None:
    raw = create(network={"publish": ["0:8000"]})
    (port,) = raw.ask("ports")["result"]["ports"]
    assert (port["address"], port["inside"]) == ("127.0.0.1", 8000) and port["port"] > 0
    start(raw, "exec_stream", "server", command=["python3", "-c", GREETS])
    until(raw, "server", lambda result: "stdout" in result)
    with socket.create_connection((port["address"], port["port"])) as line:
        assert line.recv(10) == b"hi"


def test_get_and_list_show_the_real_port_while_it_runs(
    rpc: list[str], cli: Callable[..., subprocess.CompletedProcess[str]], home: Path
) -> None:
    with serving(rpc) as server:
        created = server.ask("create", network={"publish": ["0:80"]})["result"]
        (port,) = created["ports"]
        assert json.loads(cli("get", created["id"]).stdout)["ports"] == [port]
        assert json.loads(cli("list", "--json").stdout)[0]["ports"] == [port]
        assert f"{port['address']}:{port['port']}->80" in cli("list").stdout
        assert find(str(home), created["id"]).ports == [port]
        server.ask("close")
        server.wait()
    assert json.loads(cli("list", "--json").stdout)[0]["ports"] == []


def test_stats_show_what_it_uses(create: Create) -> None:
    raw = create()
    start(raw, "exec_stream", "busy", command="head -c 20000000 /dev/zero | tail; echo up; exec sleep 1000")
    until(raw, "busy", lambda result: "stdout" in result and b"up" in base64.b64decode(result["stdout"]))
    stats = raw.ask("stats")["result"]
    assert stats["processes"] >= 1
    assert stats["memory_bytes"] > 0
    assert stats["cpu_ms"] is not None and stats["lifetime_left"] is None


# -- commands


def test_the_running_commands_of_everybody_are_listed(create: Create, home: Path) -> None:
    raw = create()
    (entry,) = (home / "vms").iterdir()
    with closing(OnSocket(entry / "socket")) as other:
        start(other, "exec_pipe", 1, command="exec sleep 1000", keep="job")
        pid = other.receive()["result"]["pid"]
        (found,) = raw.ask("processes")["result"]["processes"]
        assert (found["pid"], found["keep"], found["tty"]) == (pid, "job", False)
        assert "sleep 1000" in found["command"] and isinstance(found["id"], str)
        assert abs(found["started"] - time.time()) < 3600


def test_a_kept_command_outlives_its_client_and_is_joined(create: Create, home: Path) -> None:
    raw = create()
    (entry,) = (home / "vms").iterdir()
    with closing(OnSocket(entry / "socket")) as first:
        start(first, "exec_pipe", 1, command="echo up; read x; echo got-$x; exit 7", keep="job")
        assert first.receive()["result"]["joined"] is False
        until(first, 1, lambda result: "stdout" in result)
    start(raw, "connect", "back", keep="job")
    assert raw.receive()["result"]["joined"] is True
    assert base64.b64decode(raw.receive()["result"]["stdout"]) == b"up\n"
    start(raw, "input", "in", request="back", data=b64(b"it\n"))
    answers = [raw.receive()]
    while not any("exit_code" in answer["result"] for answer in answers):
        answers.append(raw.receive())
    output = b"".join(base64.b64decode(one["result"].get("stdout", "")) for one in answers)
    assert output == b"got-it\n"
    assert answers[-1]["result"]["exit_code"] == 7


def test_leaving_a_kept_command_is_not_its_end(create: Create) -> None:
    raw = create()
    start(raw, "exec_pipe", 1, command="exec sleep 1000", keep="job")
    pid = raw.receive()["result"]["pid"]
    start(raw, "cancel", 2, request=1)
    answers = {answer["id"]: answer for answer in (raw.receive(), raw.receive())}
    assert answers[1]["error"]["code"] == errors.CANCELLED
    assert [one["pid"] for one in raw.ask("processes")["result"]["processes"]] == [pid]


def test_connecting_to_what_is_not_kept_is_an_error(create: Create) -> None:
    error = create().ask("connect", keep="nothing")["error"]
    assert "nothing" in error["message"]


def test_cwd_is_working_dir_and_both_are_a_mistake(create: Create) -> None:
    raw = create()
    for name in ("cwd", "working_dir"):
        answer = raw.ask("exec", **{"command": "pwd", name: "/usr"})["result"]
        assert base64.b64decode(answer["stdout"]) == b"/usr\n"
    for method in ("exec", "exec_stream", "exec_pipe", "exec_tty"):
        error = raw.ask(method, command="pwd", cwd="/", working_dir="/")["error"]
        assert error["code"] == errors.INVALID_PARAMS and "cwd" in error["message"]


@pytest.mark.parametrize("method", ["exec", "exec_stream", "exec_pipe", "exec_tty", "connect", "dial", "info", "stats"])
def test_an_unknown_parameter_is_an_error(create: Create, method: str) -> None:
    error = create().ask(method, command="true", comand="true")["error"]
    assert error["code"] == errors.INVALID_PARAMS


def test_a_stream_has_no_limit_to_its_output_and_says_so(create: Create) -> None:
    assert create().ask("exec_stream", command="true", max_output=5)["error"]["code"] == errors.INVALID_PARAMS


# -- a connection inwards

ECHO = """
import socket
s = socket.create_server(('127.0.0.1', 7777))
print('up', flush=True)
while True:
    line = s.accept()[0]
    data = b''
    while part := line.recv(65536):
        data += part
    line.sendall(data[::-1])
    line.close()
"""


def test_dialling_inwards_talks_to_a_port_and_ends_as_it_ends(create: Create) -> None:
    raw = create()
    start(raw, "exec_stream", "server", command=["python3", "-c", ECHO])
    until(raw, "server", lambda result: "stdout" in result)
    start(raw, "dial", "line", port=7777, credit=4)
    assert until(raw, "line", lambda _: True)["result"] == {"connected": True}
    start(raw, "input", "in", request="line", data=b64(b"0123456789"), end=True)
    assert until(raw, "in", lambda _: True)["result"] == {}
    got = b""
    while len(got) < 4:
        got += base64.b64decode(until(raw, "line", lambda result: "data" in result)["result"]["data"])
    assert got == b"9876"
    raw.send({"jsonrpc": "2.0", "method": "more", "params": {"request": "line", "bytes": 100}})
    while (answer := until(raw, "line", lambda _: True)["result"]) != {"eof": True}:
        got += base64.b64decode(answer["data"])
    assert got == b"9876543210"
    assert until(raw, "line", lambda _: True)["result"] == {"end": True}


def test_cancelling_closes_a_connection(create: Create) -> None:
    raw = create()
    start(raw, "exec_stream", "server", command=["python3", "-c", ECHO])
    until(raw, "server", lambda result: "stdout" in result)
    start(raw, "dial", "line", port=7777)
    until(raw, "line", lambda result: "connected" in result)
    start(raw, "cancel", 3, request="line")
    assert until(raw, "line", lambda _: True)["error"]["code"] == errors.CANCELLED


def test_dialling_where_nobody_listens_is_the_systems_error(create: Create) -> None:
    error = create().ask("dial", port=9)["error"]
    assert (error["code"], error["data"]["name"]) == (errors.FILE, "ECONNREFUSED")


# -- files


def test_files_are_listed_with_kind_and_time(create: Create) -> None:
    raw = create()
    raw.ask("exec", command="mkdir -p /tmp/d/sub; echo x > /tmp/d/file; ln -s file /tmp/d/link; mkfifo /tmp/d/pipe")
    files = {file["name"]: file for file in raw.ask("list_files", path="/tmp/d")["result"]["files"]}
    kinds = {name: file["kind"] for name, file in files.items()}
    assert kinds == {"sub": "directory", "file": "file", "link": "symlink", "pipe": "other"}
    found = raw.ask("stat", path="/tmp/d/link")["result"]
    assert (found["kind"], found["size"]) == ("file", 2)
    assert found["mtime"] == pytest.approx(found["mtime_ns"] / 1e9)
    assert abs(found["mtime"] - time.time()) < 3600


def test_links_are_made_and_read_as_they_are(create: Create) -> None:
    raw = create()
    assert raw.ask("symlink", target="../no/where", path="/tmp/link")["result"] == {}
    assert raw.ask("read_link", path="/tmp/link")["result"] == {"target": "../no/where"}
    assert raw.ask("symlink", target="x", path="/tmp/link")["error"]["data"]["name"] == "EEXIST"
    assert raw.ask("read_link", path="/tmp")["error"]["data"]["name"] == "EINVAL"
    raw.ask("exec", command="ln -s $(printf 'a\\377') /tmp/odd")
    assert raw.ask("read_link", path="/tmp/odd")["result"]["target_bytes"] == b64(b"a\xff")


def test_a_link_of_procfs_reveals_nothing_of_the_guest(create: Create) -> None:
    assert create().ask("read_link", path="/proc/self/exe")["error"]["data"]["name"] == "EACCES"


def test_a_directory_is_made_as_it_was_asked_for(create: Create) -> None:
    raw = create()
    assert raw.ask("mkdir", path="/tmp/a/b", parents=False)["error"]["data"]["name"] == "ENOENT"
    assert raw.ask("mkdir", path="/tmp/a/b", mode=0o700)["result"] == {}
    assert raw.ask("stat", path="/tmp/a/b")["result"]["mode"] == 0o700
    assert raw.ask("mkdir", path="/tmp/a/b", parents=False)["error"]["data"]["name"] == "EEXIST"


# -- an overlay project's changes


def test_changes_are_listed_applied_and_refused(create: Create, home: Path) -> None:
    project = Path.cwd()
    (project / "kept").write_text("old", encoding="utf-8")
    (project / "mine").write_text("old", encoding="utf-8")
    raw = create(filesystem={"overlay": True})
    raw.ask("exec", command="echo new > kept; echo new > mine; echo x > added")
    changes = {one["path"]: one for one in raw.ask("changes")["result"]["changes"]}
    assert {path: one["kind"] for path, one in changes.items()} == {
        "kept": "modified",
        "mine": "modified",
        "added": "added",
    }
    assert changes["kept"]["before"]["size"] == 3 and changes["kept"]["after"]["size"] == 4
    (project / "mine").write_text("changed on the host", encoding="utf-8")
    done = raw.ask("apply")["result"]
    assert sorted(done["applied"]) == ["added", "kept"]
    assert [one["path"] for one in done["refused"]] == ["mine"] and done["refused"][0]["reason"]
    assert raw.ask("apply", paths=["mine"], overwrite=True)["result"]["applied"] == ["mine"]
    assert (project / "mine").read_text(encoding="utf-8") == "new\n"


def test_discarding_ends_the_sandbox_and_leaves_the_project_alone(create: Create, home: Path) -> None:
    raw = create(filesystem={"overlay": True})
    raw.ask("exec", command="echo x > added")
    (entry,) = (home / "vms").iterdir()
    assert raw.ask("discard")["result"] == {}
    assert not (Path.cwd() / "added").exists()
    assert not (entry / "overlay").exists()
    assert find(str(home), entry.name).status == "stopped"


def test_what_has_no_overlay_has_no_changes(create: Create) -> None:
    assert "--overlay" in create().ask("changes")["error"]["message"]


# -- how long it lives


def test_a_lifetime_ends_the_sandbox_and_the_record_says_why(
    rpc: list[str], home: Path, cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    with serving(rpc) as server:
        id = server.ask("create", limits={"lifetime": 3600})["result"]["id"]
        assert 0 < server.ask("stats")["result"]["lifetime_left"] <= 3600
        start(server, "exec_stream", 5, command="echo up; exec sleep 1000")
        until(server, 5, lambda result: "stdout" in result)
        assert server.ask("extend", lifetime=0.05)["result"] == {}
        error = until(server, 5, lambda result: "exit_code" in result)["error"]
        assert error["code"] == errors.CLOSED and "its lifetime is over" in error["message"]
        while find(str(home), id).running:
            pass
    assert find(str(home), id).status == "stopped"
    assert "lifetime" in cli("audit", "--json").stdout


def test_a_lifetime_can_be_taken_away(create: Create) -> None:
    raw = create(limits={"lifetime": "1h"})
    assert raw.ask("extend", lifetime=None)["result"] == {}
    assert raw.ask("stats")["result"]["lifetime_left"] is None


def test_a_sandbox_without_use_ends_but_not_while_a_command_runs(rpc: list[str], home: Path) -> None:
    with serving(rpc) as server:
        id = server.ask("create")["result"]["id"]
        start(server, "exec_stream", 6, command="echo up; sleep 0.5; exit 3")
        until(server, 6, lambda result: "stdout" in result)
        server.ask("extend", idle_timeout=0.05)
        assert until(server, 6, lambda result: "exit_code" in result)["result"]["exit_code"] == 3, "a command is use"
        while find(str(home), id).running:
            pass
    assert find(str(home), id).status == "stopped"


@pytest.mark.parametrize("seconds", [0, -1, "1h", True, 1e300])
def test_a_lifetime_is_a_positive_number_of_seconds(create: Create, seconds: object) -> None:
    assert create().ask("extend", lifetime=seconds)["error"]["code"] == errors.INVALID_PARAMS


# -- the end


def test_close_on_a_detached_sandboxes_socket_is_answered_and_it_counts_as_ended(
    cli: Callable[..., subprocess.CompletedProcess[str]], home: Path
) -> None:
    for _ in range(5):
        id = cli("run", "--detach", "--", "sleep", "1000").stdout.strip()
        with closing(OnSocket(home / "vms" / id / "socket")) as line:
            assert line.ask("close", grace=0)["result"] == {}
            while line.line.recv(65536):  # events may follow
                pass
        assert find(str(home), id).status == "stopped"
