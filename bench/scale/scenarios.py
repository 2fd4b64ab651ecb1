"""What docs/scale.md tells about: which part is full first, a million at once, lost nodes, a new image on all."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from bench.scale.costs import Costs
from bench.scale.model import Cluster, Shape, Steps


@dataclass(frozen=True)
class Outcome:
    """What one run showed. Shares are of capacity; above 1 a part falls behind for as long as that lasts."""

    asked: int
    done: int
    lost: int
    again: int
    most_alive: int
    most_waiting: int
    median: float  # seconds from asking to a sandbox that runs
    p99: float
    seconds: float  # until the last one had ended
    control: float
    interpreter: float  # the mean of the nodes'
    cores: float
    records: float


def outcome(cluster: Cluster, asking: float) -> Outcome:
    """Of a run that has ended, in which sandboxes were asked for during `asking` seconds."""
    counts, delays = cluster.counts, sorted(cluster.counts.delays)
    return Outcome(
        counts.arrived, counts.done, counts.lost, counts.again, counts.most_alive, counts.most_waiting,
        statistics.median(delays) if delays else 0.0,
        delays[int(0.99 * (len(delays) - 1))] if delays else 0.0,
        cluster.env.now,
        cluster.control.used(asking),
        statistics.fmean(node.interpreters.used(asking) for node in cluster.nodes),
        statistics.fmean(node.cores.used(asking) for node in cluster.nodes),
        cluster.records.used(asking),
    )  # fmt: skip


def steady(shape: Shape, costs: Costs, rate: float, seconds: float, seed: int = 1) -> Outcome:
    """Poisson arrivals; the run goes on until everybody is gone."""
    cluster = Cluster(shape, costs, seed)
    cluster.env.process(cluster.arrive(rate, seconds))
    cluster.env.run()
    return outcome(cluster, seconds)


def limits(shape: Shape, costs: Costs) -> dict[str, float]:
    """The arrivals a second at which each part alone would be full."""
    interpreter = costs.start.server + costs.close.server + shape.commands * costs.exec.server
    cpu = costs.start.cpu + costs.close.cpu + shape.commands * costs.exec.cpu
    return {
        "control plane": shape.schedulers / shape.place,
        "interpreters": shape.nodes * shape.servers / interpreter,
        "cores": (1 if shape.one_machine else shape.nodes) * shape.cores / cpu,
        "places": shape.nodes * shape.most / shape.life,
        "record": shape.shippers / (shape.entries * shape.entry),
    }


def loss(shape: Shape, costs: Costs, rate: float, seconds: float, share: float, seed: int = 1) -> Outcome:
    """The same, and half-way a share of the nodes is gone at once; they come back after a minute."""
    cluster = Cluster(shape, costs, seed)
    cluster.env.process(cluster.arrive(rate, seconds))

    def strike() -> Steps:
        yield cluster.env.timeout(seconds / 2)
        gone = cluster.random.sample(cluster.nodes, max(1, round(share * len(cluster.nodes))))
        for node in gone:
            cluster.lose(node)
        yield cluster.env.timeout(60)
        for node in gone:
            cluster.bring_back(node)

    cluster.env.process(strike())
    cluster.env.run()
    return outcome(cluster, seconds)


def rollout(shape: Shape, costs: Costs, rate: float, seconds: float, width: int, registry: float) -> Outcome:
    """The same, while every node gets a new image of 1 GB, `width` at a time, from a registry with so many Gbit/s."""
    cluster = Cluster(shape, costs)
    cluster.env.process(cluster.arrive(rate, seconds))
    cluster.env.process(cluster.roll_out(width, 1.0, registry, 10.0))
    cluster.env.run()
    return outcome(cluster, seconds)


def knee(shape: Shape, costs: Costs, rates: list[float], seconds: float) -> list[tuple[float, Outcome]]:
    """Rate after rate. With fewer nodes the same happens at proportionally lower rates: see `small`."""
    return [(rate, steady(shape, costs, rate, seconds)) for rate in rates]


def small(shape: Shape, factor: int) -> Shape:
    """The same cluster in proportion, `factor` times smaller: quick to simulate."""
    return replace(
        shape,
        nodes=max(1, shape.nodes // factor),
        schedulers=shape.schedulers,
        place=shape.place * factor,
        entry=shape.entry * factor,
    )
