"""The simulation beside three nodes of a Ray cluster on this machine: `scripts/cluster --scale`.

As with three servers (`compare.py`), each round is fitted to one node: one client alone, and as many as fill it. What
the simulation has to foretell is what three nodes do with any number of clients. A life is a client's: a place from
Ray, a sandbox, three commands, the end.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Barrier, Lock, Thread
from typing import Any

from bench.scale.costs import Costs, Step
from bench.scale.measure import Load, used
from tests.cluster.three_nodes import SINGLE, ThreeNodes

TURNS = 40
SETTLE = 2.0  # seconds until what is done after an answer is done: places are given back, processes reaped
PROGRAMS = 4  # that clients are threads of: a program for each would begin with minutes of Ray's own starting
ONE_NODE = {SINGLE: 0.001}


class RayCosts:
    """What each step costs one client of the cluster: the agents' processor time is the server's; that of Ray's own
    processes and of the walls is others'. What Ray does while nobody asks is subtracted."""

    def __init__(self, machines: ThreeNodes, cluster: Any) -> None:
        self._cluster = cluster
        nodes = machines.ray.list_all_nodes()
        self._rays = [one.process.pid for node in nodes for all in node.all_processes.values() for one in all]
        self._warm()
        self._agents = [one["pid"] for one in cluster.nodes() if "pid" in one]
        before, begin = self._taken(), time.monotonic()
        time.sleep(5.0)
        seconds = time.monotonic() - begin
        self._idle = [(after - one) / seconds for one, after in zip(before, self._taken(), strict=True)]

    def measured(self) -> Costs:
        """All of them."""
        made: list[Any] = []
        start = self._step(lambda: made.append(self._cluster.sandbox(cpus=0.001, timeout=60)))
        run = self._step(lambda: made[0].exec(["true"]), 4 * TURNS)
        close = self._step(lambda: made.pop().close())
        how = (
            f"{os.cpu_count()} cores, Linux {platform.release()}, {time.strftime('%F')}, load {os.getloadavg()[0]:.0f}"
        )
        return Costs(start, run, close, Step(0.0, 0.0, 0.0, 0.0), 0.0, 0.0, 0.0, how)

    def _warm(self) -> None:
        for _ in range(20):
            life(self._cluster, {"one": 0.5}, 1)

    def _taken(self) -> list[float]:
        """Processor seconds of the agents, of others, and of this process."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        agents = [used(one) for one in getattr(self, "_agents", [])]
        rays = sum(sum(used(one)) for one in self._rays)
        return [sum(one for one, _ in agents), rays + sum(one for _, one in agents), own.ru_utime + own.ru_stime]

    def _step(self, act: Callable[[], object], turns: int = TURNS) -> Step:
        before, begin, taken = self._taken(), time.monotonic(), []
        for _ in range(turns):
            at = time.perf_counter()
            act()
            taken.append(time.perf_counter() - at)
        time.sleep(SETTLE)
        seconds = time.monotonic() - begin
        cost = [
            max(0.0, after - one - idle * seconds) / turns
            for one, after, idle in zip(before, self._taken(), self._idle, strict=True)
        ]
        quick = sorted(taken)[len(taken) // 10]
        return Step(cost[0], cost[1], cost[2], max(0.0, quick - sum(cost)))


class Programs(AbstractContextManager["Programs"]):
    """Programs with clients. `load` is what `compare` asks for."""

    def __init__(self, address: str, seconds: float, commands: int) -> None:
        context: Any = multiprocessing.get_context("spawn")
        go = context.Barrier(PROGRAMS)
        self._lines = [context.Pipe() for _ in range(PROGRAMS)]
        self._all = [
            context.Process(target=_program, args=(theirs, go, address, seconds, commands), daemon=True)
            for _, theirs in self._lines
        ]
        for one in self._all:
            one.start()
        for ours, _ in self._lines:
            ours.recv()  # it has joined

    def load(self, clients: int, one_node: bool) -> Load:
        """So many clients, each one life after the other."""
        for number, (ours, _) in enumerate(self._lines):
            ours.send((len(range(number, clients, PROGRAMS)), one_node))
        told = [ours.recv() for ours, _ in self._lines]
        return Load(clients, sum(rate for rate, _ in told), statistics.median(d for _, some in told for d in some))

    def __exit__(self, *_: object) -> None:
        for ours, _ in self._lines:
            ours.send(None)
        for one in self._all:
            one.join()


def life(cluster: Any, resources: dict[str, float] | None, commands: int) -> float:
    """A whole life. Returns the seconds until the sandbox was there."""
    begin = time.perf_counter()
    with cluster.sandbox(cpus=0.001, resources=resources, timeout=300) as sandbox:
        there = time.perf_counter() - begin
        for _ in range(commands):
            sandbox.exec(["true"])
    return there


def _program(line: Any, go: Any, address: str, seconds: float, commands: int) -> None:
    from sandbox.cluster import Cluster

    with Cluster(address) as cluster:
        life(cluster, None, commands)
        line.send("joined")
        while (asked := line.recv()) is not None:
            clients, one_node = asked
            line.send(_clients(cluster, clients, ONE_NODE if one_node else None, go, seconds, commands))


def _clients(
    cluster: Any, count: int, resources: dict[str, float] | None, go: Any, seconds: float, commands: int
) -> tuple[float, list[float]]:
    """Lives a second of so many threads together, and how long each sandbox took to be there."""
    ready, lock = Barrier(count + 1), Lock()
    rates: list[float] = []
    delays: list[float] = []

    def work() -> None:
        life(cluster, resources, commands)
        ready.wait()
        begin, mine = time.perf_counter(), []
        while time.perf_counter() - begin < seconds:
            mine.append(life(cluster, resources, commands))
        with lock:
            rates.append(len(mine) / (time.perf_counter() - begin))
            delays.extend(mine)

    threads = [Thread(target=work) for _ in range(count)]
    for one in threads:
        one.start()
    go.wait()  # all programs have their clients
    ready.wait()
    for one in threads:
        one.join()
    return sum(rates), delays
