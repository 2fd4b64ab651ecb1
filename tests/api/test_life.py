"""How a sandbox is used and ends, by every surface and on every engine."""

from __future__ import annotations

import socket
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from sandbox import InvalidArgument, NotFound, SandboxClosed, get_sandbox, list_sandboxes
from tests.patience import until

SERVER = """
import socket
s = socket.create_server(('127.0.0.1', 5005)); print('up', flush=True)
while True:
    c, _ = s.accept()
    while data := c.recv(65536): c.sendall(data.upper())
    c.sendall(b'bye'); c.close()
"""


def test_it_says_who_it_is(sb: Any, engine: str) -> None:
    assert sb.engine == engine
    assert get_sandbox(sb.id).status == "running"
    assert sb.id in [one.id for one in list_sandboxes(status="running")]


def test_variables_that_were_asked_for_are_shown(open_sandbox: Any) -> None:
    assert open_sandbox(environment={"set": {"COLOUR": "blue"}}).environment == {"COLOUR": "blue"}


def test_a_port_inside_is_dialled(sb: Any) -> None:
    with sb.spawn(["python3", "-c", SERVER]) as server:
        assert server.read().startswith(b"up")
        with sb.dial(5005) as line:
            line.sendall(b"hello " * 50_000)
            line.shutdown(socket.SHUT_WR)
            heard = b"".join(iter(lambda: line.recv(65536), b""))
        assert heard == b"HELLO " * 50_000 + b"bye"
        with sb.dial(port=5005, address="127.0.0.1") as line:
            line.sendall(b"again")
            assert line.recv(100) == b"AGAIN"


ANSWERS_LATE = """
import socket
listener = socket.create_server(("127.0.0.1", 5006))
print("up", flush=True)
line, _ = listener.accept()
line.sendall(b"all of it")
line.shutdown(socket.SHUT_WR)
heard = b"".join(iter(lambda: line.recv(65536), b""))
print("heard", heard.decode(), flush=True)
"""


def test_a_port_that_has_sent_everything_can_still_be_written_to(sb: Any) -> None:
    with sb.spawn(["python3", "-c", ANSWERS_LATE]) as server:
        assert server.read().startswith(b"up")
        with sb.dial(5006) as line:
            assert b"".join(iter(lambda: line.recv(65536), b"")) == b"all of it"
            line.sendall(b"thanks")
            line.shutdown(socket.SHUT_WR)
            assert server.wait().stdout.endswith("heard thanks\n")


def test_a_port_where_nobody_listens_is_an_error(sb: Any) -> None:
    with pytest.raises(ConnectionRefusedError):
        sb.dial(5999)


def test_its_resource_use_is_reported(sb: Any, engine: str) -> None:
    before = sb.stats()
    if engine == "framed":  # the tests' own engine measures nothing
        assert before.memory_bytes is None and before.processes is None
        return
    with sb.spawn(["python3", "-c", "x = bytearray(50_000_000); print('up', flush=True); input()"]) as process:
        assert process.read().startswith(b"up")
        now = sb.stats()
        assert now.memory_bytes > max(40_000_000, before.memory_bytes)
        if engine != "qemu":  # there, what is counted are the programs that make up the machine
            assert now["processes"] > before.processes
        assert now.cpu_ms >= before.cpu_ms
    assert now.lifetime_left is None


def test_close_can_be_called_again(sb: Any) -> None:
    sb.close()
    sb.close()
    with pytest.raises(SandboxClosed):
        sb.exec("true")
    with pytest.raises(SandboxClosed):
        sb.spawn("true")


def test_close_gives_commands_time_to_end_when_asked(open_sandbox: Any, project: Path) -> None:
    from threading import Thread

    sb = open_sandbox()
    started = Event()
    sb.on_event(lambda event: started.set() if event["type"] == "exec_start" else None)
    runner = Thread(target=lambda: sb.exec("sleep 0.3; echo done > result"))
    runner.start()
    assert started.wait(60)
    sb.close(grace=60)
    runner.join()
    assert (project / "result").read_text() == "done\n"


def test_it_ends_when_its_lifetime_is_over_and_says_so(open_sandbox: Any) -> None:
    sb = open_sandbox(limits={"lifetime": 3600})
    assert 0 < sb.stats().lifetime_left <= 3600
    ended = Event()
    sb.on_event(lambda event: ended.set() if event.get("lifecycle", {}).get("state") == "stopped" else None)
    sb.extend(lifetime=0.05)
    assert ended.wait(60)
    with pytest.raises(SandboxClosed):
        while True:
            sb.exec("true")


def test_it_ends_when_nobody_uses_it_but_not_while_a_command_runs(open_sandbox: Any) -> None:
    sb = open_sandbox()
    ended = Event()
    sb.on_event(lambda event: ended.set() if event.get("lifecycle", {}).get("state") == "stopped" else None)
    with sb.spawn("echo up; sleep 0.4; echo still here") as process:
        sb.extend(idle_timeout=0.1)
        assert process.wait(60).stdout == "up\nstill here\n"
    assert ended.wait(60)


def test_looking_at_it_does_not_count_as_use(open_sandbox: Any) -> None:
    sb = open_sandbox()
    sb.extend(idle_timeout=0.5)

    def has_ended() -> bool:
        try:
            sb.stats()
        except SandboxClosed:
            return True
        return False

    assert until(has_ended)


def test_a_lifetime_can_be_taken_away(open_sandbox: Any) -> None:
    sb = open_sandbox(limits={"lifetime": 3600, "idle_timeout": 3600})
    sb.extend(idle_timeout=None)
    assert sb.stats().lifetime_left is not None
    sb.extend(lifetime=None)
    assert sb.stats().lifetime_left is None
    for wrong in (0, -1, "1"):
        with pytest.raises(InvalidArgument, match="lifetime"):
            sb.extend(lifetime=wrong)


def test_a_sandbox_without_an_overlay_keeps_no_changes(sb: Any) -> None:
    for use in (sb.changes, sb.apply, sb.discard):
        with pytest.raises(NotFound, match="has no changes"):
            use()
