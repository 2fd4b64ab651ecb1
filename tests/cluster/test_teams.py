"""Teams take turns: quotas, priorities, and what everybody is told about the queue."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from sandbox import NotFound, SandboxError
from sandbox.cluster import Cluster
from tests.cluster.three_nodes import CPUS, ThreeNodes
from tests.pool.waiting import until

TEAMS = {"high": {"priority": 10}, "low": {"sandboxes": 2}}


@pytest.fixture
def teams(cluster: Any, machines: ThreeNodes) -> Iterator[dict[str, Any]]:
    cluster.set_teams(TEAMS)
    try:
        yield {name: Cluster(machines.address, team=name) for name in TEAMS}
    finally:
        cluster.set_teams({})


def test_a_team_waits_when_it_has_all_it_may_have_and_others_do_not(
    cluster: Any, teams: dict[str, Any], machines: ThreeNodes, tmp_path: Path
) -> None:
    held = [teams["low"].sandbox(timeout=120) for _ in range(2)]
    with pytest.raises(SandboxError, match="the team 'low' has all it may have, .* number 1 in the queue"):
        teams["low"].sandbox(timeout=1.5)
    with teams["high"].sandbox(timeout=120) as other:
        assert other.exec("echo free").stdout == "free\n"
    [low] = [one for one in cluster.teams() if one["team"] == "low"]
    assert low["used"]["sandboxes"] == 2.0 and low["most"]["sandboxes"] == 2.0
    with pytest.raises(NotFound, match="no team 'nobody'"):
        Cluster(machines.address, team="nobody").sandbox(timeout=60)
    command = [sys.executable, "-m", "sandbox.cli.main", "cluster", "teams", "--address", machines.address]
    shown = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    assert [one["used"]["sandboxes"] for one in json.loads(shown) if one["team"] == "low"] == [2.0]
    (tmp_path / "teams.yaml").write_text("high: {priority: 10}\nlow: {sandboxes: 3}\n")
    subprocess.run([*command, str(tmp_path / "teams.yaml")], check=True)
    held.append(teams["low"].sandbox(timeout=120))  # it has one more now
    for one in held:
        one.close()
    with teams["low"].sandbox(timeout=120):
        pass


def test_of_those_that_wait_the_higher_priority_gets_the_place(cluster: Any, teams: dict[str, Any]) -> None:
    held = [teams["high"].sandbox(cpus=CPUS, timeout=120) for _ in range(3)]
    got: list[str] = []
    made: list[Any] = []
    positions: dict[str, list[int]] = {"low": [], "high": []}

    def ask(team: str) -> None:
        sandbox = teams[team].sandbox(cpus=CPUS, on_wait=positions[team].append)
        got.append(team)
        made.append(sandbox)

    threads = [Thread(target=ask, args=(team,)) for team in ("low", "high")]
    threads[0].start()
    until(lambda: positions["low"])
    threads[1].start()
    until(lambda: positions["high"])
    until(lambda: positions["low"][-1] == 2)
    assert positions["high"][-1] == 1 and cluster.waiting() == 2
    assert [(one["team"], one["priority"], one["waits_for"]) for one in cluster.queue()] == [
        ("high", 10, "room"), ("low", 0, "room")
    ]  # fmt: skip
    held.pop().close()
    until(lambda: got)
    assert got == ["high"]
    made.pop().close()
    until(lambda: got == ["high", "low"])
    for thread in threads:
        thread.join(60)
    for one in (*held, *made):
        one.close()


def used_machines(cluster: Any) -> int:
    return sum(one.get("CPU", 0.0) < CPUS for one in cluster._nodes.free().values())


def settled(cluster: Any, used: int) -> None:
    """Ray's figures follow what it has done within a moment."""
    until(lambda: used_machines(cluster) == used)


def test_packed_sandboxes_share_a_machine_and_spread_ones_do_not(cluster: Any) -> None:
    for placement, machines in (("pack", 1), ("spread", 3)):
        settled(cluster, 0)
        made = []
        for number in range(3):
            made.append(cluster.sandbox(cpus=0.5, placement=placement, timeout=120))
            settled(cluster, min(number + 1, machines))
        assert len({one.node for one in made}) == machines
        for one in made:
            one.close()


def test_a_machine_that_has_the_image_is_taken_first(cluster: Any) -> None:
    settled(cluster, 0)
    wanted = sorted(cluster._nodes.free())[1]
    cluster._nodes.publish(wanted, ["image:some-image"])
    try:
        asked = {"image": "some-image"}
        from sandbox.cluster.placing import near, preferred

        nodes = cluster._nodes
        target = preferred(nodes.free(), {"CPU": 0.1}, None, near(asked), nodes.cached())
        assert target == wanted
        held = nodes.reserve({"CPU": 0.1}, 60, None, (), target)
        assert held.node == wanted
        full = nodes.reserve({"CPU": CPUS - 0.1}, 60, None, (), target)
        assert full.node == wanted
        elsewhere = nodes.reserve({"CPU": CPUS}, 60, None, (), wanted)  # a wish, not a condition
        assert elsewhere.node != wanted
        for one in (held, full, elsewhere):
            one.release()
    finally:
        cluster._nodes.publish(wanted, [])
