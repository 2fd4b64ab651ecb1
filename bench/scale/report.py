"""Every scenario of docs/scale.md, as plain figures for results.json."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from bench.scale.costs import Costs
from bench.scale.model import Cluster, Shape
from bench.scale.scenarios import Outcome, knee, limits, loss, outcome, rollout, small, steady

# 10,000 nodes with 32 cores; a hundred sandboxes each are a million.
BIG = Shape(nodes=10_000, cores=32, most=110, schedulers=16, commands=3, life=120.0)
REGISTRY = 100.0  # Gbit/s
FACTOR = 100  # the sweeps are made with a hundredth of it
SWEEP = (0.2, 0.5, 0.8, 0.9, 1.0, 1.2)  # of the rate at which the first part is full


def everything(costs: Costs) -> Iterator[tuple[str, Any]]:
    """One part after the other, the longest last."""
    shape = replace(BIG, place=costs.ask.server)
    yield "shape", asdict(shape)
    yield "limits", limits(shape, costs)
    yield "one_host", one_host(costs)
    yield "loss", losses(shape, costs)
    yield "rollout", rollouts(shape, costs)
    yield "sweep", sweep(shape, costs)
    yield "million", million(shape, costs)


def one_host(costs: Costs) -> list[dict[str, float]]:
    """One machine with 64 cores: how many servers use it up."""
    found = []
    for servers in (1, 2, 4, 8, 16, 32):
        shape = Shape(nodes=1, cores=64, servers=servers, most=100_000)
        found.append({"servers": servers, **limits(shape, costs)})
    return found


def sweep(shape: Shape, costs: Costs) -> list[dict[str, Any]]:
    part = small(shape, FACTOR)
    full = min(limits(part, costs).values())
    told = knee(part, costs, [share * full for share in SWEEP], 240.0)
    return [
        {"share": share, "rate": rate * FACTOR, **asdict(one)}
        for share, (rate, one) in zip(SWEEP, told, strict=True)
    ]  # fmt: skip


def million(shape: Shape, costs: Costs) -> dict[str, Any]:
    """A million asked for within a minute, all 10,000 nodes; each runs one command."""
    begin = time.perf_counter()
    cluster = Cluster(replace(shape, commands=1), costs)
    cluster.env.process(cluster.arrive(1_000_000 / 60, 60.0))
    cluster.env.run()
    one: Outcome = outcome(cluster, 60.0)
    return {"took": time.perf_counter() - begin, **asdict(one)}


def losses(shape: Shape, costs: Costs) -> list[dict[str, Any]]:
    part = small(shape, FACTOR)
    rate = 0.7 * min(limits(part, costs).values())
    shares = (0.0, 0.01, 0.1, 0.3)
    return [
        {"share": share, **asdict(loss(part, costs, rate, 240.0, share) if share else steady(part, costs, rate, 240.0))}
        for share in shares
    ]


def rollouts(shape: Shape, costs: Costs) -> list[dict[str, Any]]:
    part = small(shape, FACTOR)
    rate = 0.7 * min(limits(part, costs).values())
    return [
        {"width": width * FACTOR, **asdict(rollout(part, costs, rate, 900.0, width, REGISTRY / FACTOR))}
        for width in (1, 10, 30, 50)
    ]
