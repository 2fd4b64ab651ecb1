"""What clients send costs the owner a bounded amount of memory, however many they are and however long their lines."""

from __future__ import annotations

import socket
from pathlib import Path
from threading import Thread

import pytest

from sandbox.registry.registry import find
from sandbox.rpc import errors
from sandbox.rpc.budget import ALL_BYTES, BYTES
from sandbox.rpc.lines import LINE_LIMIT
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


def test_the_limits_fit_together() -> None:
    assert 2 * LINE_LIMIT <= BYTES <= ALL_BYTES
