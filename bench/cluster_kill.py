"""`.cluster/bin/python -m bench.cluster_kill [COUNT]`: kill -9 of a node with that many sandboxes.

Everybody who has one must be told within 5 s, sandboxes elsewhere are undisturbed, and nothing of the node is left.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

MOST = 5.0  # seconds until the last one is told
AT_ONCE = 8
PATIENCE = 60.0


def main() -> int:
    from sandbox.cluster import Cluster
    from sandbox.errors import SandboxLost
    from sandbox.registry.registry import entries
    from tests.cluster.three_nodes import three_nodes

    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    machines = three_nodes()
    with Cluster(machines.address) as cluster:
        doomed = machines.add({"doomed": count})
        with ThreadPoolExecutor(AT_ONCE) as pool:
            asked = [pool.submit(_made, cluster) for _ in range(count)]
            made = [one.result() for one in asked]
        assert {one.node for one in made} == {doomed.node_id}
        with cluster.sandbox(resources={"one": 0.1}, timeout=120) as other:
            agent = next(one["pid"] for one in cluster.nodes() if one["node"] == doomed.node_id)
            pids = [agent, *(one.process.pid for group in doomed.all_processes.values() for one in group)]
            start = time.monotonic()
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            told = _until(lambda: all(one._line.ended for one in made)) - start
            undisturbed = other.node == doomed.node_id or other.exec("echo here").stdout == "here\n"
        lost = 0
        for one in made:
            try:
                one.exec("true")
            except SandboxLost:
                lost += 1
        home = os.path.join(machines.home, "nodes", doomed.node_id[:12])
        left = _until(lambda: not any(one.running for one in entries(home))) - start
        held = told <= MOST and lost == count and undisturbed and left < PATIENCE
        print(
            f"{count}: all told after {told:.2f} s, {lost} raise SandboxLost, nothing left after {left:.1f} s; "
            f"others {'undisturbed' if undisturbed else 'DISTURBED'}; load {os.getloadavg()[0]:.0f}"
        )
        machines.ray.remove_node(doomed, allow_graceful=False)
    return 0 if held else 1


def _made(cluster: Any) -> Any:
    return cluster.sandbox(cpus=0.001, resources={"doomed": 1}, timeout=500)


def _until(true: Any) -> float:
    end = time.monotonic() + PATIENCE
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return time.monotonic()


if __name__ == "__main__":
    sys.exit(main())
