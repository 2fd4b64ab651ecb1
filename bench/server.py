"""The HTTP API: a command beside JSON-RPC, many at a time, the record's fan-out, and what an idle server holds."""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import httpx

from bench.harness import Bench, Row
from sandbox import Client
from sandbox.audit.record import Record
from tests.server.serving import Served

STREAMS, SUBSCRIBERS, ENTRIES, RATE = 200, 50, 5000, 1000
SANDBOX = "vm-bench001"


def rows(bench: Bench) -> Iterator[Row]:
    """Every budget of the server. It runs from this tree, because `bench` installs no extras."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp") as place:
        os.environ["SANDBOX_HOME"] = place
        served = Served(Path(place), "--port", "0", "--rate", "1000000")
        try:
            bench.log("server")
            resident = _resident(served)
            yield Row("an idle server's memory", f"{resident:.0f} MB", budget="≤ 80 MB", held=resident <= 80)
            box = served.create()
            yield from _commands(served, box, 5 * bench.repetitions)
            yield _streams(served, box)
            yield _fan_out(served, place)
        finally:
            served.end()
            del os.environ["SANDBOX_HOME"]


def _resident(served: Served) -> float:
    pages = int(Path(f"/proc/{served.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _commands(served: Served, box: str, times: int) -> Iterator[Row]:
    with Client(command=[sys.executable, "-m", "sandbox.cli.main", "--rpc"]) as client:
        rpc = _median(lambda: client.exec(["true"]), times)
    path = f"/v1/sandboxes/{box}/exec"
    http = _median(lambda: served.http.post(path, json={"command": ["true"]}), times)
    figures = (f"{http:.1f} ms", f"{http / rpc:.1f} × JSON-RPC ({rpc:.1f} ms)")
    yield Row("**`POST exec` of `true`**", *figures, budget="≤ 3 ×", held=http <= 3 * rpc)


def _median(act: Callable[[], object], times: int) -> float:
    act()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        act()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1000


def _streams(served: Served, box: str) -> Row:
    async def one(client: httpx.AsyncClient) -> bool:
        asked = {"command": "echo a; sleep 0.5; echo b"}
        headers = {"Accept": "text/event-stream"}
        async with client.stream("POST", f"/v1/sandboxes/{box}/exec", json=asked, headers=headers) as answer:
            text = "".join([piece async for piece in answer.aiter_text()])
            return answer.status_code == 200 and '"exit_code":0' in text

    async def all_of_them() -> int:
        headers = {"Authorization": f"Bearer {served.token}"}
        limits = httpx.Limits(max_connections=STREAMS)
        more = {"base_url": served.address, "headers": headers, "timeout": 120, "limits": limits, "trust_env": False}
        async with httpx.AsyncClient(**more) as client:  # type: ignore[arg-type]
            done = await asyncio.gather(*(one(client) for _ in range(STREAMS)), return_exceptions=True)
        return sum(one is True for one in done)

    good = asyncio.run(all_of_them())
    return Row(f"{STREAMS} streamed commands at a time", f"{good} complete", budget="all", held=good == STREAMS)


def _fan_out(served: Served, home: str) -> Row:
    """Entries are written at a steady rate; every subscriber must have had all of them soon after the last one."""
    lines = [_subscriber(served) for _ in range(SUBSCRIBERS)]
    readers = [Thread(target=_read, args=(line,), daemon=True) for line in lines]
    for each in readers:
        each.start()
    record = Record(os.path.join(home, "audit"), sandbox=SANDBOX)
    start = time.perf_counter()
    for number in range(ENTRIES):
        record.write("policy_decision", f"entry {number}")
        time.sleep(max(0.0, start + number / RATE - time.perf_counter()))
    for each in readers:
        each.join(30)
    taken = time.perf_counter() - start
    complete = sum(not each.is_alive() for each in readers)
    figure = f"{complete} have all of them after {taken:.1f} s"
    held = complete == SUBSCRIBERS and taken < 1.2 * ENTRIES / RATE
    return Row(f"{RATE} entries a second to {SUBSCRIBERS} subscribers, 5 s", figure, budget="all, ≤ 6 s", held=held)


def _subscriber(served: Served) -> socket.socket:
    host, _, port = served.address.removeprefix("http://").partition(":")
    line = socket.create_connection((host, int(port)))
    head = f"GET /v1/audit/stream?sandbox={SANDBOX} HTTP/1.1\r\nHost: {host}\r\n"
    line.sendall(f"{head}Authorization: Bearer {served.token}\r\n\r\n".encode())
    heard = b""
    while b": the record" not in heard:
        heard += line.recv(4096)
    return line


def _read(line: socket.socket) -> None:
    mark, count, rest = b"event: entry", 0, b""
    while count < ENTRIES:
        data = rest + line.recv(2**16)
        count += data.count(mark)
        rest = data[-(len(mark) - 1) :]
