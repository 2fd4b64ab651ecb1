"""Real servers: what each step costs one client of one server, and what a small cluster of them does under load.

Processor time is read from /proc, of a server and the children that it reaped. The kernel makes and unmakes namespaces
in threads of its own, which no process is charged for: what a life costs the machine beyond that is found by filling
one server with clients, on a quiet machine.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.scale.costs import Costs, Step
from tests.server.serving import Served

TURNS = 60
FULL = 12  # clients that keep one server busy
TICK = os.sysconf("SC_CLK_TCK")


class Caller:
    """One client with a connection of its own."""

    def __init__(self, served: Served) -> None:
        host, _, port = served.address.removeprefix("http://").partition(":")
        self._line = http.client.HTTPConnection(host, int(port), timeout=120)
        self._headers = {"Authorization": f"Bearer {served.token}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: object = None) -> dict[str, object]:
        self._line.request(method, path, None if body is None else json.dumps(body), self._headers)
        answer = self._line.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:200]!r}")
        said: dict[str, object] = json.loads(text)
        return said

    def start(self) -> str:
        return str(self.call("POST", "/v1/sandboxes", {"config": {}})["id"])

    def exec(self, id: str) -> None:
        self.call("POST", f"/v1/sandboxes/{id}/exec", {"command": ["true"]})

    def close(self, id: str) -> None:
        self.call("DELETE", f"/v1/sandboxes/{id}")

    def life(self, commands: int) -> float:
        """A whole life. Returns the seconds until the sandbox was there."""
        begin = time.perf_counter()
        id = self.start()
        there = time.perf_counter() - begin
        for _ in range(commands):
            self.exec(id)
        self.close(id)
        return there


@contextmanager
def servers(count: int) -> Iterator[list[Served]]:
    """Real `sandbox serve` processes, each with a home of its own."""
    made: list[Served] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp") as place:
        try:
            for number in range(count):
                home = Path(place, str(number))
                home.mkdir()
                made.append(Served(home, "--port", "0", "--rate", "1000000"))
            yield made
        finally:
            for one in made:
                one.end()


def used(pid: int) -> tuple[float, float]:
    """Seconds of a process itself, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, child_user, child_system = (int(one) / TICK for one in fields[11:15])
    return user + system, child_user + child_system


def step(served: Served, act: Callable[[], object], turns: int = TURNS) -> Step:
    """The mean cost of one call: ticks of a hundredth of a second need many of them."""
    act()
    before, mine = used(served.process.pid), resource.getrusage(resource.RUSAGE_SELF)
    taken = []
    for _ in range(turns):
        begin = time.perf_counter()
        act()
        taken.append(time.perf_counter() - begin)
    after, mine_after = used(served.process.pid), resource.getrusage(resource.RUSAGE_SELF)
    server, others = ((one - two) / turns for one, two in zip(after, before, strict=True))
    client = (mine_after.ru_utime + mine_after.ru_stime - mine.ru_utime - mine.ru_stime) / turns
    quick = sorted(taken)[len(taken) // 10]  # one of the quickest: what the machine did besides is not the step's
    return Step(server, others, client, max(0.0, quick - server - others - client))


def costs() -> Costs:
    """One client of one server. Closing is when the walls' processes are reaped: their time counts there."""
    with servers(1) as (served,):
        caller = Caller(served)
        for _ in range(5):
            caller.life(1)
        ask = step(served, lambda: caller.call("GET", "/v1/health"), 4 * TURNS)
        there: list[str] = []
        empty = resident(served)
        start = step(served, lambda: there.append(caller.start()))
        memory = (resident(served) - empty) / len(there)
        run = step(served, lambda: caller.exec(there[0]), 4 * TURNS)
        close = step(served, lambda: caller.close(there.pop()), TURNS - 1)
    how = f"{os.cpu_count()} cores, Linux {platform.release()}, {time.strftime('%F')}, load {os.getloadavg()[0]:.0f}"
    kernel = beyond(start, run, close)
    close = replace(close, others=close.others + kernel)
    return Costs(start, run, close, ask, memory, empty, kernel, how)


def beyond(start: Step, run: Step, close: Step) -> float:
    """Seconds of a core that a life takes beyond what processes are charged for. On a machine that does other things,
    too, that cannot be told, and counts as none."""
    if os.getloadavg()[0] > len(os.sched_getaffinity(0)):
        return 0.0
    with servers(1) as made:
        full = load(FULL, made, 8.0, 1)
    charged = sum(one.cpu + one.client for one in (start, run, close))
    return max(0.0, len(os.sched_getaffinity(0)) / full.rate - charged)


def resident(served: Served) -> float:
    """Megabytes of a server and everything below it, shared pages in proportion."""
    total = 0.0
    for pid in _family(served.process.pid):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return total


def _family(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += _family(int(child))
    return found


@dataclass(frozen=True)
class Load:
    """What clients in closed loops got out of it."""

    clients: int
    rate: float  # lives a second
    median: float  # seconds until the sandbox was there


def load(clients: int, made: list[Served], seconds: float, commands: int) -> Load:
    """So many clients over these servers, each one life after the other."""
    context = multiprocessing.get_context("fork")
    go, results = context.Barrier(clients + 1), context.SimpleQueue()
    workers = [
        context.Process(target=_client, args=(made[number % len(made)], go, results, seconds, commands))
        for number in range(clients)
    ]
    for one in workers:
        one.start()
    go.wait()
    told = [results.get() for _ in workers]
    for one in workers:
        one.join()
    return Load(clients, sum(rate for rate, _ in told), statistics.median(d for _, delays in told for d in delays))


def _client(served: Served, go: object, results: object, seconds: float, commands: int) -> None:
    caller = Caller(served)
    caller.life(commands)
    go.wait()  # type: ignore[attr-defined]
    begin, delays = time.perf_counter(), []
    while time.perf_counter() - begin < seconds:
        delays.append(caller.life(commands))
    results.put((len(delays) / (time.perf_counter() - begin), delays))  # type: ignore[attr-defined]
    os._exit(0)  # not what the parent would clear up
