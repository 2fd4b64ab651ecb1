"""Each node's record is shipped and verified, and nothing is lost when an agent is killed at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.audit.reading import lines, verify
from sandbox.errors import SandboxError
from tests.cluster.test_cluster import agent_of, lease, leaser
from tests.cluster.three_nodes import ThreeNodes
from tests.pool.waiting import until


def node_records(machines: ThreeNodes) -> dict[str, str]:
    """What the nodes themselves have on disk."""
    nodes = Path(machines.home, "nodes")
    found = {one.name: "".join(line for _, _, line in lines(str(one / "audit"))) for one in nodes.iterdir()}
    return {name: text for name, text in found.items() if text}


def kept_records(machines: ThreeNodes) -> dict[str, str]:
    kept = Path(machines.home, "cluster-records")
    found = {one.name: (one / "audit.jsonl").read_text() for one in kept.iterdir() if (one / "audit.jsonl").exists()}
    return {name: text for name, text in found.items() if text}


def test_one_feed_has_what_happened_on_every_node(cluster: Any, machines: ThreeNodes) -> None:
    made = [cluster.sandbox(cpus=2, timeout=60) for _ in range(3)]
    for one in made:
        one.exec("true")
        one.close()
    wanted = {(one.node[:12], one.id) for one in made}
    with cluster.records() as records:
        seen: list[dict[str, Any]] = []

        def all_there() -> bool:
            seen.extend(records.new())
            return wanted <= {(one["node"], one.get("sandbox")) for one in seen}

        until(all_there)
        assert all(records.verdicts().values())
        numbers = [(one["node"], one["seq"]) for one in seen]
        assert len(set(numbers)) == len(numbers)
    env = {**os.environ, "SANDBOX_CLUSTER": machines.address}
    command = [sys.executable, "-m", "sandbox.cli.main", "audit", "--cluster"]
    shown = subprocess.run([*command, "--json", "--sandbox", made[0].id], env=env, capture_output=True, text=True)
    assert {json.loads(line)["node"] for line in shown.stdout.splitlines()} == {made[0].node[:12]}, shown.stderr
    verified = subprocess.run([*command, "verify"], env=env, capture_output=True, text=True)
    assert verified.returncode == 0 and "none altered, removed or moved" in verified.stdout


def test_nothing_is_lost_when_agents_are_killed_at_any_moment(cluster: Any, machines: ThreeNodes) -> None:
    """Who ships and who keeps, in turns, while entries are written."""
    for turn in range(6):
        made = [cluster.sandbox(timeout=120) for _ in range(3)]
        for one in made:
            one.exec("true")
        keeper = cluster._nodes.keeper()
        victim = keeper if turn % 2 else made[0].node
        until(lambda victim=victim: "pid" in agent_of(cluster, victim))  # type: ignore[misc]
        os.kill(agent_of(cluster, victim)["pid"], signal.SIGKILL)
        for one in made:
            try:
                one.exec("true")
            except SandboxError:
                pass
            one.close()
    # Ray has to start the agents again first, which takes its time on a busy machine.
    until(lambda: all("pid" in one for one in cluster.nodes() if one["node"][:12] in node_records(machines)))
    until(lambda: node_records(machines).items() <= kept_records(machines).items())
    for name in kept_records(machines):
        assert verify(os.path.join(machines.home, "cluster-records", name)), name


def test_a_record_that_was_changed_on_its_node_is_noticed(cluster: Any, machines: ThreeNodes) -> None:
    made = cluster.sandbox(timeout=60)
    node = made.node[:12]
    made.close()
    until(lambda: kept_records(machines).get(node) == node_records(machines)[node])
    before = kept_records(machines)[node]
    log = Path(machines.home, "nodes", node, "audit", "audit.jsonl")
    with open(log, "a") as file:
        file.write('{"timestamp":"2026-01-01T00:00:00.000Z","type":"forged"}\n')
    with cluster.records() as records:

        def noticed() -> bool:
            records.new()
            return not records.verdicts()[node]

        until(noticed)
        assert records.verdicts()[node].count == before.count("\n")
    assert kept_records(machines)[node] == before


def test_a_lease_does_not_read_the_record(cluster: Any) -> None:
    from sandbox.cluster.line import AgentRefused, Line

    keeper = cluster._nodes.keeper()
    url, authority, token, *_ = cluster._nodes.ask(keeper, "lease", *leaser(cluster))
    assert lease(cluster)
    with Line(url, cluster._lines.context(authority), token) as line, pytest.raises(AgentRefused):
        line.ask("GET", "/v1/cluster/records")
