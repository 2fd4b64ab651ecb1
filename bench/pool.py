"""Warm pools: a sandbox that is ready beside one that is built."""

from __future__ import annotations

from collections.abc import Iterator

from bench.harness import Bench, Failed, Row, Worker, own_project
from bench.walls import timed

HAND_OUT = 3.0  # milliseconds, with the first command


def rows(bench: Bench) -> Iterator[Row]:
    """The budget of a hand-out, and what it is measured against."""
    with own_project() as project, Worker(bench.python, "bench.workers.pool", project) as worker:
        bench.log("pool: hand-out")
        median = bench.medians({name: worker.case(name) for name in ("built", "hand-out", "pool", "late project")})
    built = median["built"]
    yield timed("`Sandbox()` + first command", built, built, "built")
    yield timed("`pool.get()` alone", median["hand-out"], built, "built")
    ours = median["pool"]
    what = "**`pool.get()` + first command**"
    if isinstance(ours, Failed):
        yield Row(what, f"not measured: {ours}", budget=f"≤ {HAND_OUT:g} ms", held=False)
    else:
        yield Row(what, f"{ours:.2f} ms", budget=f"≤ {HAND_OUT:g} ms", held=ours <= HAND_OUT)
    yield timed("`pool.get(project=…)` + first command", median["late project"], built, "built")
