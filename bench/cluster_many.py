"""`.cluster/bin/python -m bench.cluster_many [COUNT]`: that many sandboxes alive over three Ray nodes on this machine.

There must be no knee (the last hundred start about as quickly as the first), and each may take 3 MB beyond what Ray and
the agents take without any.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MOST_MB = 3.0
KNEE = 2.0  # times as long as the first hundred
AT_ONCE = 4
LOOKED = 100


def main() -> int:
    from sandbox.cluster import Cluster
    from tests.cluster.three_nodes import patient, three_nodes

    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    patient()
    machines = three_nodes()
    with Cluster(machines.address) as cluster:
        for _ in range(3):  # agents that have done everything once
            warm = [cluster.sandbox(resources={"one": 0.5}, timeout=300) for _ in range(6)]
            for one in warm:
                one.exec(["true"])
                one.close()
        agents = [one["pid"] for one in cluster.nodes() if "pid" in one]
        before = sum(map(resident, agents))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            made = list(pool.map(lambda _: started(cluster), range(count)))
        after = sum(map(resident, agents))
        alive = sum(one["sandboxes"] for one in cluster.nodes() if "pid" in one)
        right = sum(one.exec(["echo", "here"]).stdout == "here\n" for one, _ in made[:: max(1, count // LOOKED)])
        times = [took for _, took in made]
        first, last = statistics.median(times[:LOOKED]), statistics.median(times[-LOOKED:])
        each = (after - before) / count
        spread = sorted(one["sandboxes"] for one in cluster.nodes() if "pid" in one)
        load = os.getloadavg()[0]
    print(
        f"{alive} alive on {len(agents)} nodes ({spread}); started in {first * 1000:.0f} ms (first {LOOKED}) and "
        f"{last * 1000:.0f} ms (last {LOOKED}), {last / first:.2f} ×; {each:.2f} MB each; {right} asked and answered; "
        f"load {load:.0f}"
    )
    return 0 if alive == count and last <= KNEE * first and each <= MOST_MB else 1


def started(cluster: Any) -> tuple[Any, float]:
    begin = time.perf_counter()
    made = cluster.sandbox(cpus=0.001, timeout=600)
    made.exec(["true"])
    return made, time.perf_counter() - begin


def resident(pid: int) -> float:
    """Megabytes of a process and everything below it, shared pages in proportion."""
    total = 0.0
    for one in family(pid):
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return total


def family(pid: int) -> list[int]:
    """A process and all that descend from it, in one look at /proc."""
    children: dict[int, list[int]] = {}
    for one in Path("/proc").iterdir():
        if one.name.isdigit():
            try:
                parent = int((one / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(one.name))
    found, new = [], [pid]
    while new:
        found.append(new.pop())
        new += children.get(found[-1], [])
    return found


if __name__ == "__main__":
    sys.exit(main())
