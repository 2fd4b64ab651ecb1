"""Flow control: a client that does not read costs a window of memory, on either side, and stops the command."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.client import Client
from sandbox.rpc import errors
from tests.rpc.raw import Raw, serving
from tests.rpc.test_memory import peak
from tests.sandboxes import address

pytestmark = pytest.mark.walls

WINDOW = 300_000


@pytest.fixture
def made(rpc: list[str]) -> Iterator[Raw]:
    with serving(rpc) as raw:
        assert raw.ask("create")["result"]["id"].startswith("vm-")
        yield raw


def start(raw: Raw, method: str, id: int, **params: Any) -> None:
    raw.send({"jsonrpc": "2.0", "method": method, "params": params, "id": id})


def size(result: dict[str, Any]) -> int:
    """How much output an answer carries."""
    return sum(len(base64.b64decode(result[name])) for name in ("stdout", "stderr", "data") if name in result)


def receive(raw: Raw, id: int, bytes: int) -> int:
    """Reads answers to `id` until they carried so many bytes of output; how many it were."""
    got = 0
    while got < bytes:
        answer = raw.receive()
        assert answer["id"] == id
        got += size(answer["result"])
    return got


def test_no_more_is_sent_than_was_granted_and_the_command_waits(made: Raw) -> None:
    start(made, "exec_stream", 5, command="yes", credit=WINDOW)
    assert receive(made, 5, WINDOW) == WINDOW
    # Every answer of another request comes behind whatever else would have been sent.
    for id in range(10, 20):
        assert made.ask("exec", id, command="true")["result"]["exit_code"] == 0
    made.send({"jsonrpc": "2.0", "method": "more", "params": {"request": 5, "bytes": 1000}})
    assert receive(made, 5, 1000) == 1000
    assert made.ask("exec", 22, command="true")["result"]["exit_code"] == 0


def test_both_streams_together_count(made: Raw) -> None:
    start(made, "exec_stream", 5, command="yes & yes >&2", credit=WINDOW)
    assert receive(made, 5, WINDOW) == WINDOW
    assert made.ask("exec", 6, command="true")["result"]["exit_code"] == 0


@pytest.mark.parametrize("method", ["exec_stream", "exec_pipe", "exec_tty"])
def test_an_unread_command_costs_the_server_no_memory_and_waits(made: Raw, method: str) -> None:
    # The command counts what it could write, and says so in a file.
    command = "i=0; while head -c 65536 /dev/zero | tr '\\0' x; do i=$((i+1)); echo $i > /tmp/count; done"
    start(made, method, 5, command=command, credit=WINDOW)
    got, before = 0, peak(made.server.pid)
    while got < WINDOW:
        got += size(made.receive()["result"])
    counted = max(read_count(made, 10 + number) for number in range(40))  # whatever else were sent would come between
    assert counted * 65536 < WINDOW + 2 * 2**20, "it goes on writing though nobody reads"
    assert peak(made.server.pid) - before < 30 * 2**20
    made.send({"jsonrpc": "2.0", "method": "cancel", "params": {"request": 5}, "id": 90})
    assert made.receive()["id"] in (5, 90)  # whichever comes first


def read_count(raw: Raw, id: int) -> int:
    answer = raw.ask("exec", id, command="sync; cat /tmp/count")["result"]
    return int(base64.b64decode(answer["stdout"]) or b"0")


def test_cancelling_a_command_that_waits_for_credit_ends_it(made: Raw) -> None:
    start(made, "exec_stream", 5, command="yes", credit=1)
    assert receive(made, 5, 1) == 1
    start(made, "cancel", 6, request=5)
    answers = {answer["id"]: answer for answer in (made.receive(), made.receive())}
    assert answers[5]["error"]["code"] == errors.CANCELLED
    assert answers[6]["result"] == {}


def test_closing_the_sandbox_does_not_wait_for_a_client_that_grants_nothing(made: Raw) -> None:
    start(made, "exec_stream", 5, command="yes", credit=1)
    receive(made, 5, 1)
    start(made, "close", 6, grace=0)
    while made.receive()["id"] != 6:
        pass
    assert made.wait() == 0


def test_what_a_command_printed_last_comes_with_the_last_credit(made: Raw) -> None:
    start(made, "exec_stream", 5, command="printf 0123456789; exit 4", credit=4)
    assert receive(made, 5, 4) == 4
    made.send({"jsonrpc": "2.0", "method": "more", "params": {"request": 5, "bytes": 100}})
    assert receive(made, 5, 6) == 6
    assert made.receive()["result"]["exit_code"] == 4


@pytest.mark.parametrize("credit", [0, -1, 2**63, "1", 1.5])
def test_a_window_is_a_positive_whole_number(made: Raw, credit: object) -> None:
    for method in ("exec_stream", "exec_pipe", "exec_tty"):
        assert made.ask(method, command="true", credit=credit)["error"]["code"] == errors.INVALID_PARAMS


def test_credit_for_a_request_that_does_not_run_is_an_error(made: Raw) -> None:
    assert made.ask("more", request=77, bytes=1)["error"]["code"] == errors.NO_SUCH_REQUEST


def test_a_client_on_the_socket_that_stops_reading_stops_only_its_own_command(made: Raw, home: Path) -> None:
    (entry,) = (home / "vms").iterdir()
    with socket.socket(socket.AF_UNIX) as line:
        with address(entry / "socket") as name:
            line.connect(name)
        line.sendall(
            b'{"jsonrpc": "2.0", "method": "exec_stream", "params": {"command": "yes", "credit": 1000}, "id": 1}\n'
        )
        assert made.ask("exec", command="echo on")["result"]["exit_code"] == 0


def memory() -> int:
    """What this process has in memory now, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@pytest.mark.parametrize("start", ["exec_stream", "spawn", "terminal"])
def test_a_python_client_that_does_not_read_on_holds_no_more_than_a_window(rpc: list[str], start: str) -> None:
    with Client(command=rpc) as client:
        if start == "exec_stream":
            chunks = iter(client.exec_stream("yes"))
        else:
            chunks = iter(client.spawn("yes", pty=(24, 80) if start == "terminal" else None).chunks())
        assert next(chunks)
        before = memory()
        for _ in range(60):
            assert client.exec("true").ok  # its answer comes behind everything that was sent before
        assert memory() - before < 20 * 2**20
        assert client.stats().processes
