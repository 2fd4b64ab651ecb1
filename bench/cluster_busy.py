"""`.cluster/bin/python -m bench.cluster_busy [SECONDS]`: create + command + close, all cores busy, beside local ones.

As many programs as there are cores do nothing else, in turns: on this machine alone, and over three Ray nodes on it.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from typing import Any

LEAST = 0.6  # of the local rate
ROUNDS = 5
WARM = 3


def main() -> int:
    from tests.cluster.three_nodes import patient, three_nodes

    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 6.0
    patient()
    address = three_nodes().address
    os.chdir(tempfile.mkdtemp(prefix="bench-"))
    context = multiprocessing.get_context("spawn")
    cores = len(os.sched_getaffinity(0))
    with _Programs(context, cores, "") as local, _Programs(context, cores, address) as cluster:
        rates = [(local.rate(seconds), cluster.rate(seconds)) for _ in range(ROUNDS)]
    ratio = statistics.median(there / here for here, there in rates)
    here, there = (statistics.median(one) for one in zip(*rates, strict=True))
    print(
        f"{cores} programs: {here:.1f} a second here, {there:.1f} over the cluster: {ratio:.2f} of it (≥ {LEAST}); "
        f"load {os.getloadavg()[0]:.0f}"
    )
    return 0 if ratio >= LEAST else 1


class _Programs:
    """Processes that wait, and work when they are told to."""

    def __init__(self, context: Any, count: int, address: str) -> None:
        self._lines = [context.Pipe() for _ in range(count)]
        self._all = [context.Process(target=_work, args=(theirs, address), daemon=True) for _, theirs in self._lines]

    def __enter__(self) -> _Programs:
        for one in self._all:
            one.start()
        for ours, _ in self._lines:
            ours.recv()  # it is warm
        return self

    def rate(self, seconds: float) -> float:
        for ours, _ in self._lines:
            ours.send(seconds)
        return float(sum(ours.recv() for ours, _ in self._lines))

    def __exit__(self, *_: object) -> None:
        for ours, _ in self._lines:
            ours.send(None)
        for one in self._all:
            one.join()


def _work(line: Any, address: str) -> None:
    from sandbox import Sandbox
    from sandbox.cluster import Cluster

    if not address:
        _serve(line, Sandbox)
        return
    with Cluster(address) as cluster:
        _serve(line, lambda: cluster.sandbox(timeout=300))


def _serve(line: Any, make: Any) -> None:
    def life() -> None:
        with make() as sandbox:
            sandbox.exec(["true"])

    for _ in range(WARM):
        life()
    line.send("ready")
    while (seconds := line.recv()) is not None:
        begin, done = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            life()
            done += 1
        line.send(done / (time.perf_counter() - begin))


if __name__ == "__main__":
    sys.exit(main())
