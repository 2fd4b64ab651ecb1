"""The simulation beside three real servers on this machine: do they agree?

A loaded machine gives more or less of itself from one moment to the next. So the two ends are measured again in
every round, on one server: one client alone, and as many as keep it busy. The simulation is fitted to those and has to
foretell what three servers do with any number of clients; the median of the rounds counts. How many other programs are
busy is looked up, because three servers get more of a machine that they share than one does.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from bench.scale.costs import Costs, Step
from bench.scale.measure import FULL, Load
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


def cores() -> int:
    return len(os.sched_getaffinity(0))


class Moment(NamedTuple):
    """A machine as it is now: how much longer work takes than when it was measured, how much longer waiting, and how
    many programs of others have something to do at the same time."""

    slower: float
    longer: float
    others: float

    def costs(self, costs: Costs) -> Costs:
        return replace(costs, start=self._step(costs.start), exec=self._step(costs.exec), close=self._step(costs.close))

    def _step(self, one: Step) -> Step:
        slower = self.slower
        return Step(one.server * slower, one.others * slower, one.client * slower, one.idle * self.longer)

    def shape(self, nodes: int) -> Shape:
        """Servers that share this machine's cores; clients place themselves."""
        return Shape(
            nodes=nodes, cores=cores(), one_machine=True, others=self.others, place=0.0, commands=COMMANDS, life=1e-9
        )


def fitted(costs: Costs, alone: float, full: float, others: float) -> Moment:
    """The machine of a moment: `alone` and `full` are lives a second of one client, and of as many as fill one server.

    A full server does not wait, so that it tells how long its work takes; one client alone tells how long it waits.
    """
    now = Moment(1.0, 0.0, others)
    for _ in range(2):  # a full server waits a little all the same

        def when_full(slower: float, now: Moment = now) -> float:
            return simulate(FULL, costs, now._replace(slower=slower), 1).rate - full

        now = now._replace(slower=_bisect(when_full, 0.02, 20.0))

        def when_alone(longer: float, now: Moment = now) -> float:
            return simulate(1, costs, now._replace(longer=longer), 1).rate - alone

        now = now._replace(longer=_bisect(when_alone, 0.0, 20.0))
    return now


def _bisect(falls: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function is 0, or the end that is nearest to it."""
    for _ in range(14):
        middle = (low + high) / 2
        if falls(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def busy_others(seconds: float = 1.0) -> float:
    """How many programs have something to do while we have nothing: the mean of many looks."""
    looks, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        said = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("procs_running"))
        looks.append(int(said.split()[1]) - 1)  # without this one
        time.sleep(0.02)
    return statistics.mean(looks)


def simulate(clients: int, measured: Costs, moment: Moment, nodes: int = NODES, lives: int = 60) -> Load:
    """The same closed loops, in the simulation."""
    costs = moment.costs(measured)
    cluster = Cluster(moment.shape(nodes), costs)
    done, delays = [0], []

    def client(number: int) -> Steps:
        node = cluster.nodes[number % nodes]
        while done[0] < lives:
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


def compare(costs: Costs, load: Callable[[int, bool], Load], rounds: int = ROUNDS) -> list[Beside]:
    """`load` is what so many clients get out of one real node, or else of three."""
    found: dict[int, list[tuple[Load, Load]]] = {clients: [] for clients in CLIENTS}
    for _ in range(rounds):
        others = busy_others()
        alone, full = load(1, True).rate, load(FULL, True).rate
        now = fitted(costs, alone, full, others)
        for clients in CLIENTS:
            found[clients].append((load(clients, False), simulate(clients, costs, now)))
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
