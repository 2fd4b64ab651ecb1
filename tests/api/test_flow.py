"""An output that nobody reads costs a client's program a bounded amount of memory, and the command waits."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Client
from sandbox.rpc.remote import WINDOW


@pytest.fixture
def client(project: Path) -> Iterator[Client]:
    server = [sys.executable, "-m", "sandbox.cli.main", "--rpc"]
    with Client({"filesystem": {"root": str(project)}}, command=server) as client:
        yield client


@pytest.fixture
def memory() -> Iterator[Any]:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    yield resident


@pytest.mark.parametrize("pty", [None, (24, 80)])
def test_an_unread_yes_costs_no_more_than_the_window(client: Client, memory: Any, pty: Any) -> None:
    before = memory()
    with client.spawn("yes", pty=pty) as process:
        read = sum(len(process.read()) for _ in range(3))  # a reader that begins, and stops
        counter = 0
        seen = -1
        while counter != seen:  # until the command stands still: its processor time does not change any more
            seen, counter = counter, client.stats().cpu_ms or 0
            client.exec("sleep 0.3")
        assert memory() - before < 20 * 2**20
        assert read > 0
        assert sum(len(process.read()) for _ in range(200)) > 0  # and goes on when it is read


def test_a_stream_that_is_not_read_on_waits(client: Client, memory: Any) -> None:
    before = memory()
    stream = client.exec_stream("yes")
    next(stream)
    for _ in range(5):
        client.exec("sleep 0.1")
    assert memory() - before < 20 * 2**20
    total = 0
    while total < 8 * WINDOW:
        piece = next(stream)
        total += len(getattr(piece, "data", b""))
    stream.close()  # type: ignore[attr-defined]


def test_a_dialled_port_that_is_not_read_waits(client: Client, memory: Any) -> None:
    flood = (
        "import socket\ns = socket.create_server(('127.0.0.1', 5005)); print('up', flush=True)\n"
        "c, _ = s.accept()\nwhile True: c.sendall(b'x' * 65536)"
    )
    with client.spawn(["python3", "-c", flood]) as server:
        assert server.read().startswith(b"up")
        before = memory()
        with client.dial(5005) as line:
            assert line.recv(10) == b"x" * 10
            for _ in range(5):
                client.exec("sleep 0.1")
            assert memory() - before < 20 * 2**20
