"""`.cluster/bin/python -m bench.cluster`: sandboxes over three Ray nodes on this machine, beside local ones.

Not part of `make bench`, whose environment has no Ray. `scripts/cluster` makes the one that is used here.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.harness import Row, table

REPETITIONS = 31
MOST_P99 = 250.0  # milliseconds
MOST_RATIO = 2.0
MOST_FURTHER = 1.5  # milliseconds beyond a local command


def main() -> int:
    from sandbox import Pool
    from sandbox.cluster import Cluster
    from tests.cluster.three_nodes import three_nodes

    machines = three_nodes()
    os.chdir(tempfile.mkdtemp(prefix="bench-"))
    with Cluster(machines.address, pool=4) as cluster, Pool(size=4) as pool:
        found = list(rows(cluster, pool))
    print(table(found))
    print(f"\n3 Ray nodes on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    return 1 if any(one.held is False for one in found) else 0


def rows(cluster: Any, pool: Any) -> Iterator[Row]:
    """Local and cluster take turns, so that a busy moment falls on both alike."""
    local, remote, further = [], [], {"local": [], "cluster": []}  # type: ignore[var-annotated]
    for turn in range(REPETITIONS + 4):
        pool.fill(60)
        for times, get, name in ((local, pool.get, "local"), (remote, cluster.sandbox, "cluster")):
            took, sandbox = first(get)
            again = timed(lambda sandbox=sandbox: sandbox.exec(["true"]))  # type: ignore[misc]
            sandbox.close()
            if turn >= 4:  # the first ones start agents and fill caches
                times.append(took)
                further[name].append(again)
    ratio = statistics.median(remote) / statistics.median(local)
    yield Row("local pool: sandbox + first command, p50", f"{statistics.median(local):.1f} ms")
    yield Row(
        "**cluster: sandbox + first command**, p50", f"{statistics.median(remote):.1f} ms", f"{ratio:.1f} × local",
        f"≤ {MOST_RATIO:g} ×", ratio <= MOST_RATIO,
    )  # fmt: skip
    worst = sorted(remote)[min(len(remote) - 1, int(len(remote) * 0.99))]
    yield Row("… p99", f"{worst:.0f} ms", "", f"≤ {MOST_P99:g} ms", worst <= MOST_P99)
    more = statistics.median(further["cluster"]) - statistics.median(further["local"])
    yield Row(
        "**cluster: a further command**, beyond local",
        f"{more:.2f} ms",
        "",
        f"≤ {MOST_FURTHER} ms",
        more <= MOST_FURTHER,
    )


def first(get: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    sandbox = get()
    sandbox.exec(["true"])
    return (time.perf_counter() - start) * 1000, sandbox


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


if __name__ == "__main__":
    sys.exit(main())
