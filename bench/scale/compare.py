"""The simulation beside three real servers on this machine: do they agree?

A loaded machine gives more or less of itself from one moment to the next. So the two ends are measured again in
every round, on one server: one client alone, and as many as keep it busy. The simulation is fitted to those and has to
foretell what three servers do with any number of clients; the median of the rounds counts.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass, replace

from bench.scale.costs import Costs, Step
from bench.scale.measure import FULL, Load, load, servers
from bench.scale.model import Cluster, Shape, Steps

NODES, COMMANDS, SECONDS, ROUNDS = 3, 3, 3.0, 7
CLIENTS = (2, 3, 6, 12)
AGREED = 0.30


@dataclass(frozen=True)
class Beside:
    """Rates are lives a second, starts the median seconds until a sandbox was there; both medians of the rounds."""

    clients: int
    measured: float
    simulated: float
    measured_start: float
    simulated_start: float
    off: float  # the median of how far the simulated rate was from the measured one


def small_cluster() -> Shape:
    """Three servers that share this machine's cores; clients place themselves."""
    return Shape(nodes=NODES, cores=cores(), one_machine=True, place=0.0, commands=COMMANDS, life=1e-9)


def cores() -> int:
    return len(os.sched_getaffinity(0))


def fitted(costs: Costs, alone: float, full: float) -> Costs:
    """The costs of a moment: `alone` and `full` are lives a second of one client, and of as many as fill one server."""
    steps = {"start": (costs.start, 1), "exec": (costs.exec, COMMANDS), "close": (costs.close, 1)}
    busy = sum(count * (one.cpu + one.client) for one, count in steps.values())
    idle = sum(count * one.idle for one, count in steps.values())
    more = min(cores() / full, 1 / alone) / busy
    longer = max(0.0, 1 / alone - more * busy) / idle if idle else 0.0
    made = {
        name: Step(one.server * min(more, 1.0), one.cpu * more - one.server * min(more, 1.0), one.client * more,
                   one.idle * longer)
        for name, (one, _) in steps.items()
    }  # fmt: skip
    return replace(costs, start=made["start"], exec=made["exec"], close=made["close"])


def simulate(clients: int, costs: Costs, seconds: float = 30.0) -> Load:
    """The same closed loops, in the simulation."""
    cluster = Cluster(small_cluster(), costs)
    done, delays = [0], []

    def client(number: int) -> Steps:
        node = cluster.nodes[number % NODES]
        while cluster.env.now < seconds:
            begin = cluster.env.now
            yield from cluster.work(node, costs.start)
            delays.append(cluster.env.now - begin)
            for _ in range(COMMANDS):
                yield from cluster.work(node, costs.exec)
            yield from cluster.work(node, costs.close)
            done[0] += 1

    for number in range(clients):
        cluster.env.process(client(number))
    cluster.env.run()
    return Load(clients, done[0] / cluster.env.now, statistics.median(delays))


def compare(costs: Costs) -> list[Beside]:
    found: dict[int, list[tuple[Load, Load]]] = {clients: [] for clients in CLIENTS}
    with servers(NODES) as made:
        for _ in range(ROUNDS):
            alone = load(1, made[:1], SECONDS, COMMANDS).rate
            full = load(FULL, made[:1], SECONDS, COMMANDS).rate
            now = fitted(costs, alone, full)
            for clients in CLIENTS:
                found[clients].append((load(clients, made, SECONDS, COMMANDS), simulate(clients, now)))
    return [_beside(clients, told) for clients, told in found.items()]


def _beside(clients: int, told: list[tuple[Load, Load]]) -> Beside:
    middle = statistics.median
    return Beside(
        clients,
        middle(real.rate for real, _ in told),
        middle(made.rate for _, made in told),
        middle(real.median for real, _ in told),
        middle(made.median for _, made in told),
        middle(made.rate / real.rate for real, made in told) - 1,
    )
