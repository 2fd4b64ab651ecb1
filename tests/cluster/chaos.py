"""`python -m tests.cluster.chaos --minutes 20`: kill -9 of agents, nodes and clients at random, under load.

Ends with an error unless nothing is left afterwards: no sandbox, no place that is held, and no line of any record that
was not shipped and verified. `make chaos` is 20 minutes of it, `make cluster` one.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from sandbox.audit.reading import verify
from sandbox.errors import SandboxError
from sandbox.registry.registry import entries
from tests.cluster.test_record import kept_records, node_records
from tests.cluster.three_nodes import ThreeNodes, patient, three_nodes

CLIENTS = 2
PATIENCE = 300.0  # seconds in which everything must have ended and been shipped


class Chaos:
    """One run."""

    def __init__(self, machines: ThreeNodes, cluster: Any, chance: random.Random) -> None:
        self._machines, self._cluster, self._chance = machines, cluster, chance
        self._clients = [self._client() for _ in range(CLIENTS)]
        self._extra: list[Any] = []
        self.done: Counter[str] = Counter()
        self.trouble: Counter[str] = Counter()  # what did not work on the way; it is judged at the end what is left
        self._add_node()

    def _client(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.cluster.chaos", "--client", self._machines.address]
        return subprocess.Popen(command)

    def step(self) -> None:
        """One kill, and what replaces what was killed."""
        what = self._chance.choice(("agent", "agent", "client", "node"))
        try:
            getattr(self, f"_kill_{what}")()
            self.done[what] += 1
        except SandboxError as problem:
            self.trouble[f"{what}: {problem}"] += 1
        for number, client in enumerate(self._clients):
            if client.poll() is not None:
                # A client ends by a kill of ours. One that could not join a busy cluster is started again.
                if client.returncode != -signal.SIGKILL:
                    self.trouble[f"a client ended with {client.returncode}"] += 1
                self._clients[number] = self._client()

    def _kill_agent(self) -> None:
        pids = [one["pid"] for one in self._cluster.nodes() if "pid" in one]
        if pids:
            _kill(self._chance.choice(pids))

    def _kill_client(self) -> None:
        victim = self._chance.choice(self._clients)
        victim.kill()
        victim.wait()

    def _kill_node(self) -> None:
        if self._extra:
            self._machines.ray.remove_node(self._extra.pop(), allow_graceful=False)
        self._add_node()

    def _add_node(self) -> None:
        """One more node. A machine too busy to start it in Ray's 30 s is no reason to stop: it is tried again."""
        try:
            self._extra.append(self._machines.add())
        except Exception as problem:  # noqa: BLE001 - Ray raises nothing narrower
            self.trouble[f"a node did not start: {type(problem).__name__}"] += 1

    def end(self) -> None:
        """The clients are killed, too: what they had must end by itself."""
        for client in self._clients:
            client.kill()
            client.wait()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def left(machines: ThreeNodes, cluster: Any) -> dict[str, Any]:
    """What is there that should not be."""
    from ray.util.placement_group import placement_group_table

    nodes = os.path.join(machines.home, "nodes")
    running = [one.id for name in os.listdir(nodes) for one in entries(os.path.join(nodes, name)) if one.running]
    held = [one["name"] for one in placement_group_table().values() if one["state"] not in ("REMOVED",)]
    found = {"running": running, "held": held, "record": unshipped(machines)}
    return {name: one for name, one in found.items() if one}


def unshipped(machines: ThreeNodes) -> list[str]:
    """Records that are not kept as they are on their node, or do not verify."""
    there, kept = node_records(machines), kept_records(machines)
    bad = [name for name, lines in there.items() if kept.get(name) != lines]
    return bad + [one for one in kept if not verify(os.path.join(machines.home, "cluster-records", one))]


def wait_for(true: Callable[[], object]) -> bool:
    """Whether it becomes true in time. An error is no answer yet: a cluster that lost nodes is busy."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if true():
                return True
        except Exception as problem:  # noqa: BLE001 - Ray has many
            print(f"not yet: {type(problem).__name__}: {problem}"[:300], file=sys.stderr)
        time.sleep(1)
    return False


def client(address: str) -> None:
    """The load: sandboxes are made, used and closed, whatever happens to them."""
    from sandbox.cluster import Cluster

    chance = random.Random()
    with Cluster(address) as cluster:
        while True:
            try:
                with cluster.sandbox(timeout=60) as sandbox:
                    for _ in range(chance.randrange(1, 6)):
                        assert sandbox.exec("echo x > file; cat file").stdout == "x\n"
            except SandboxError:
                pass  # what was under way when somebody killed it


def run(minutes: float, seed: int) -> int:
    from sandbox.cluster import Cluster

    patient()
    machines = three_nodes()
    with Cluster(machines.address) as cluster:
        cluster.sandbox(timeout=120).close()  # the agents that keep and ship are there
        chaos = Chaos(machines, cluster, random.Random(seed))
        end = time.monotonic() + minutes * 60
        try:
            while time.monotonic() < end:
                time.sleep(chaos._chance.uniform(1, 5))
                chaos.step()
        finally:
            chaos.end()
        clean = wait_for(lambda: not left(machines, cluster))
        found = left(machines, cluster)
        lines = sum(text.count("\n") for text in kept_records(machines).values())
    told = f"killed {dict(chaos.done)}; {lines} lines of records kept; left: {found or 'nothing'}"
    print(f"{minutes:g} minutes, seed {seed}: {told}")
    for what, count in chaos.trouble.items():
        print(f"on the way: {count} times {what}")
    return 0 if clean else 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--client", metavar="ADDRESS")
    asked = parser.parse_args()
    if asked.client:
        client(asked.client)
    return run(asked.minutes, asked.seed if asked.seed is not None else random.randrange(2**31))


if __name__ == "__main__":
    sys.exit(main())
