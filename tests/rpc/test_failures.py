"""When the host runs short of something, or the other side sends what cannot be read, the rest goes on."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox, SandboxClosed
from sandbox.client import attach
from sandbox.rpc import listen, same_user, session
from sandbox.rpc.connection import Connection
from sandbox.rpc.event_queue import EventQueue
from sandbox.rpc.launches import Launches
from sandbox.rpc.lines import CONTENT_LIMIT, Writer
from sandbox.rpc.reverse_calls import ReverseCalls
from tests.sandboxes import address

PATIENCE = 30.0


class Failing:
    """A listening socket whose first calls of `accept` fail."""

    def __init__(self, real: socket.socket, problems: list[int]) -> None:
        self._real = real
        self._problems = problems

    def accept(self) -> Any:
        if self._problems:
            raise OSError(self._problems.pop(), "not now")
        return self._real.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def closed_by_the_other_side(path: Path) -> bool:
    """Connects; whether the other side then closes the connection instead of leaving it open unserved."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(PATIENCE)
        with address(path) as name:
            line.connect(name)
        try:
            line.sendall(b"\0" * 64)  # no launcher says this
            return line.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


@pytest.mark.walls
@pytest.mark.parametrize("problem", [errno.EMFILE, errno.ECONNABORTED])
def test_launchers_are_served_after_a_time_without_descriptors(
    home: Path, problem: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Sandbox() as sandbox:
        launches = sandbox._companion(Launches)
        problems = [problem] * 4
        monkeypatch.setattr(launches, "_listener", Failing(launches._listener, problems))
        for _ in range(8):
            assert closed_by_the_other_side(Path(launches.path))
        assert not problems


@pytest.mark.walls
def test_a_client_is_served_after_one_whose_user_could_not_be_found_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Sandbox() as sandbox:
        real, problems = same_user.same_user, [OSError(errno.ENOBUFS, "not now")]
        monkeypatch.setattr(same_user, "same_user", lambda line: _raise(problems.pop()) if problems else real(line))
        with pytest.raises(SandboxClosed):
            attach(sandbox.id).exec("true")
        with attach(sandbox.id) as attached:
            assert attached.exec("true").exit_code == 0


@pytest.mark.walls
def test_clients_that_could_not_be_served_take_no_place_from_later_ones(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Sandbox() as sandbox:
        with monkeypatch.context() as short:
            short.setattr(session, "RpcSession", lambda *_, **__: _raise(OSError(errno.EMFILE, "not now")))
            for _ in range(listen._CONNECTIONS):
                assert closed_by_the_other_side(Path(sandbox._register().path) / "socket")
        with attach(sandbox.id) as attached:
            assert attached.exec("true").exit_code == 0


def _raise(problem: Exception) -> Any:
    raise problem


@pytest.fixture
def line() -> Iterator[tuple[Connection, socket.socket]]:
    """A client's connection, and the server's end of it."""
    ours, theirs = socket.socketpair()
    connection = Connection(ours.fileno(), ours.fileno(), lambda: ours.shutdown(socket.SHUT_RDWR), ours)
    with theirs:
        yield connection, theirs
        connection.close()


@pytest.mark.parametrize(
    "answer",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}',
        b'{"jsonrpc":"2.0","id":1,"error":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
        b'{"jsonrpc":"2.0","id":1,"method":"event","params":' + b'{"x":' * 20_000 + b"1" + b"}" * 20_000 + b"}",
    ],
    ids=["not UTF-8", "nested deeply", "an event nested deeply"],
)
def test_an_answer_that_cannot_be_read_ends_the_wait(line: tuple[Connection, socket.socket], answer: bytes) -> None:
    connection, theirs = line
    ended = threading.Event()
    connection.on_end = ended.set
    with connection.stream("info", {}) as stream:
        theirs.sendall(answer + b"\n")
        with pytest.raises(SandboxClosed):
            stream.next_raw(PATIENCE)
    assert ended.wait(PATIENCE)
    with pytest.raises(SandboxClosed):
        connection.stream("info", {})


def test_events_continue_after_a_handler_that_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    reported: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))

    def deliver(happened: dict[str, Any]) -> None:
        heard.append(happened["type"])
        if happened["type"] == "first":
            raise ValueError(happened)

    queue = EventQueue(deliver, "test")
    for type in ("first", "second"):
        queue.put({"type": type})
    queue.close(PATIENCE)
    assert heard == ["first", "second"]
    assert reported == [ValueError]


def test_a_hook_that_cannot_be_sent_is_not_waited_for() -> None:
    read, write = os.pipe()
    try:
        hooks = ReverseCalls(Writer(write))
        endless: list[object] = []
        endless.append(endless)
        with pytest.raises(RecursionError):
            hooks.hook({"name": "x", "value": endless})
        assert not hooks.waiting
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.walls
def test_a_length_beyond_the_limit_reads_a_small_file(rpc: list[str]) -> None:
    from tests.rpc.raw import serving

    with serving(rpc) as server:
        server.ask("create")
        server.ask("exec", command="echo short > /tmp/x")
        answer = server.ask("read_file", path="/tmp/x", offset=0, length=CONTENT_LIMIT + 1)
        assert answer["result"]["size"] == 6
