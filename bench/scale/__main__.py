"""`python -m bench.scale measure|compare|run|plots`: measures real servers, simulates, and draws. `make scale`: all.

`python -m bench.scale ray`, for which `scripts/cluster --scale` installs Ray: compares with three nodes of Ray.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bench.scale.costs import Costs

if TYPE_CHECKING:
    from bench.scale.compare import Beside

RAY_ROUNDS = 4
RESULTS = Path(__file__).with_name("results.json")


def main(words: list[str]) -> int:
    failed = 0
    for word in words or ["measure", "compare", "run", "plots"]:
        failed |= {"measure": measure, "compare": compare, "run": run, "plots": plots, "ray": on_ray}[word]()
    return failed


def keep(**more: object) -> None:
    there = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**there, **more}, indent=1) + "\n", encoding="utf-8")


def measure() -> int:
    from bench.scale.measure import costs

    found = costs()
    found.save()
    print(found)
    return 0


def compare() -> int:
    from bench.scale.compare import COMMANDS, NODES, SECONDS, compare
    from bench.scale.measure import load, servers

    with servers(NODES) as made:
        found = compare(Costs.load(), lambda clients, one: load(clients, made[:1] if one else made, SECONDS, COMMANDS))
    return told("compared", found)


def on_ray() -> int:
    from bench.scale.compare import COMMANDS, SECONDS, compare
    from bench.scale.on_ray import Programs, RayCosts
    from sandbox.cluster import Cluster
    from tests.cluster.three_nodes import patient, three_nodes

    patient()
    machines = three_nodes()
    with Cluster(machines.address) as cluster:
        costs = RayCosts(machines, cluster).measured()
    keep(ray_costs=asdict(costs))
    with Programs(machines.address, SECONDS, COMMANDS) as programs:
        found = compare(costs, programs.load, rounds=RAY_ROUNDS)
    return told("compared_ray", found)


def told(name: str, found: list[Beside]) -> int:
    from bench.scale.compare import AGREED

    keep(**{name: [asdict(one) for one in found]})
    for one in found:
        starts = f"start {one.measured_start * 1000:.0f} ms, {one.simulated_start * 1000:.0f} ms"
        rates = f"measured {one.measured:6.1f} lives/s, simulated {one.simulated:6.1f} ({one.off:+.0%})"
        print(f"{one.clients:3} clients: {rates}; {starts}")
    return 0 if all(abs(one.off) <= AGREED for one in found) else 1


def run() -> int:
    from bench.scale.report import everything

    for name, told in everything(Costs.load()):
        keep(**{name: told})
        print(name, flush=True)
    return 0


def plots() -> int:
    from bench.scale.plots import draw

    draw(json.loads(RESULTS.read_text(encoding="utf-8")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
