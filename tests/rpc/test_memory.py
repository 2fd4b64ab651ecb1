"""What clients send costs the owner a bounded amount of memory, however many they are and however long their lines."""

from __future__ import annotations

import base64
import socket
from pathlib import Path
from threading import Thread

import pytest

from sandbox import Sandbox
from sandbox.registry.registry import find
from sandbox.rpc import errors
from sandbox.rpc import messages as m
from sandbox.rpc.budget import ALL_BYTES, BYTES, ByteBudget
from sandbox.rpc.call import Call, Inputs
from sandbox.rpc.commands import exec as exec_command
from sandbox.rpc.errors import Fault
from sandbox.rpc.lines import LINE_LIMIT, Writer
from sandbox.rpc.request_order import RequestOrder
from tests.rpc.raw import Raw, serving
from tests.sandboxes import address

pytestmark = pytest.mark.walls

PIECE = b"A" * 2**20


def peak(pid: int) -> int:
    """The most memory that process ever had, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def send_line(path: Path, megabytes: int, heard: list[bytes]) -> None:
    head = b'{"jsonrpc": "2.0", "id": 1, "method": "write_file", "params": {"path": "/tmp/x", "content": "'
    with socket.socket(socket.AF_UNIX) as line:
        with address(path) as name:
            line.connect(name)
        line.sendall(head)
        for _ in range(megabytes):
            line.sendall(PIECE)
        line.sendall(b'"}}\n')
        reply = line.makefile("rb")
        while b'"event"' in (answer := reply.readline()):
            pass
        heard.append(answer)


def from_all_sides(server: Raw, home: Path, megabytes: int, connections: int = 4) -> list[bytes]:
    id = server.ask("create")["result"]["id"]
    path = Path(find(str(home), id).path) / "socket"
    heard: list[bytes] = []
    senders = [Thread(target=send_line, args=(path, megabytes, heard)) for _ in range(connections)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    return heard


def test_long_lines_on_many_connections_are_never_collected_beyond_the_limit(rpc: list[str], home: Path) -> None:
    with serving(rpc) as server:
        heard = from_all_sides(server, home, 250)
        assert all(str(errors.LINE_TOO_LONG).encode() in answer for answer in heard)
        assert len(heard) == 4
        assert peak(server.server.pid) < 4 * LINE_LIMIT + 150 * 2**20


def test_lines_within_the_limit_cost_no_more_than_the_budget_of_all(rpc: list[str], home: Path) -> None:
    with serving(rpc) as server:
        heard = from_all_sides(server, home, 60, connections=6)
        assert len(heard) == 6
        for answer in heard:
            assert b'"result":{}' in answer or str(errors.BUSY).encode() in answer
        assert any(b'"result":{}' in answer for answer in heard)
        assert peak(server.server.pid) < ALL_BYTES + 300 * 2**20
        assert server.ask("exec", 2, command="wc -c < /tmp/x")["result"]["exit_code"] == 0


def test_input_that_commands_do_not_read_counts_however_many_they_are(rpc: list[str], home: Path) -> None:
    data = base64.b64encode(bytes(15 * 2**20)).decode()
    with serving(rpc) as server:
        server.ask("create")
        refused = []
        for number in range(10, 20):
            assert server.ask("exec_pipe", number, command="sleep 1000")["result"]["pid"]
            params = {"request": number, "data": data}
            server.send({"jsonrpc": "2.0", "method": "input", "params": params, "id": 100 + number})
            server.send({"jsonrpc": "2.0", "method": "stats", "params": {}, "id": 200 + number})
            while (answer := server.receive()).get("id") != 200 + number:
                refused.append(answer["error"]["code"])
        assert set(refused) == {errors.BUSY}
        assert 10 - len(refused) <= BYTES // (15 * 2**20)
        server.send({"jsonrpc": "2.0", "method": "input", "params": {"request": 10, "data": ""}, "id": 1})


def test_input_of_no_bytes_counts_too() -> None:
    inputs = Inputs(ByteBudget(100 * 1024))
    with pytest.raises(Fault) as caught:
        for _ in range(1000):
            inputs.put(b"", False, lambda problem: None, None)
    assert caught.value.code == errors.BUSY
    inputs.close()


def test_output_that_exec_collects_counts_and_is_cut_when_memory_is_short(home: Path) -> None:
    budget = ByteBudget(50_000)
    with budget.hold() as held, Sandbox() as sandbox:
        call = Call(Writer(-1), 1, "exec", RequestOrder().next_turn(), lambda call: None, held, budget)
        said = exec_command(call, sandbox, m.Exec(command="head -c 1000000 /dev/zero"))
    assert said["truncated"] and said["exit_code"] == 0
    assert len(said["stdout"]) < 51_000
    assert budget.take(50_000)  # all of it was given back


def test_the_limits_fit_together() -> None:
    assert 2 * LINE_LIMIT <= BYTES <= ALL_BYTES
