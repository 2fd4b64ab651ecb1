"""A machine that is lost: who is told, and which sandboxes go on elsewhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from sandbox import SandboxError, SandboxLost
from sandbox.cluster import Checkpoints
from tests.cluster.test_cluster import agent_of
from tests.cluster.three_nodes import ThreeNodes
from tests.pool.test_late import fill_project
from tests.pool.waiting import until


@pytest.fixture
def doomed(cluster: Any, machines: ThreeNodes) -> Iterator[Any]:
    """A fourth node, with a resource that no other has."""
    node = machines.add({"doomed": 4})
    until(lambda: any(one["node"] == node.node_id for one in cluster.nodes()))
    yield node
    if node in machines.ray.worker_nodes:
        machines.ray.remove_node(node, allow_graceful=False)


def stopped(cluster: Any, node: Any) -> list[int]:
    """Every process of a node, as if the machine hung: its raylet and its agent."""
    pids = [one.process.pid for group in node.all_processes.values() for one in group]
    found = [*pids, agent_of(cluster, node.node_id)["pid"]]
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    return found


def test_a_node_that_falls_silent_is_lost_too(cluster: Any, doomed: Any) -> None:
    sandbox = cluster.sandbox(resources={"doomed": 1}, timeout=60)
    with cluster.sandbox(resources={"one": 0.1}) as other:
        problems: list[BaseException] = []

        def run() -> None:
            try:
                sandbox.exec("sleep 1000")
            except SandboxError as problem:
                problems.append(problem)

        waiting = Thread(target=run)
        waiting.start()
        until(lambda: sandbox.processes())
        pids = stopped(cluster, doomed)
        try:
            waiting.join(60)
            assert [type(one) for one in problems] == [SandboxLost]
            with pytest.raises(SandboxLost):
                sandbox.exec("true")
            assert other.node == doomed.node_id or other.exec("echo here").stdout == "here\n"
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
    sandbox.close()


def test_with_checkpoints_it_continues_elsewhere_from_the_last_one(cluster: Any, tmp_path: Path) -> None:
    policy = Checkpoints(f"file://{tmp_path}/store", every=None)
    with cluster.sandbox(checkpoints=policy, timeout=60) as sandbox:
        script = "echo first > kept; echo mine > ~/note; mkdir -p a/b; echo deep > a/b/c; ln -s kept link"
        sandbox.exec(script, check=True)
        sandbox.save()
        sandbox.exec("echo later > kept", check=True)
        before = sandbox.id
        os.kill(agent_of(cluster, sandbox.node)["pid"], signal.SIGKILL)
        until(lambda: sandbox._line.ended)
        assert sandbox.exec("cat kept link ~/note a/b/c", check=True).stdout == "first\nfirst\nmine\ndeep\n"
        assert sandbox.recovered == 1 and sandbox.id != before
        sandbox.save()
        assert len(list((tmp_path / "store").iterdir())) == 1
    assert list((tmp_path / "store").iterdir()) == []  # closed, so nothing is left


def test_a_project_continues_too_and_comes_back_from_there(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    project = fill_project(tmp_path / "project")
    (project / "unwanted").write_text("x")
    policy = Checkpoints(f"file://{tmp_path}/store", every=None)
    with cluster.sandbox(project=project, checkpoints=policy, timeout=60) as sandbox:
        sandbox.exec("echo more >> notes.txt; rm unwanted", check=True)
        sandbox.save()
        os.kill(agent_of(cluster, sandbox.node)["pid"], signal.SIGKILL)
        until(lambda: sandbox._line.ended)
        with sandbox.bring_back() as review:
            assert {one.path: one.kind for one in review.changes()} == {"notes.txt": "modified", "unwanted": "deleted"}
            review.apply()
    assert (project / "notes.txt").read_text() == "plain\nmore\n" and not (project / "unwanted").exists()


def test_without_a_checkpoint_it_is_lost(cluster: Any, tmp_path: Path) -> None:
    with cluster.sandbox(checkpoints=Checkpoints(f"file://{tmp_path}/store", every=None), timeout=60) as sandbox:
        os.kill(agent_of(cluster, sandbox.node)["pid"], signal.SIGKILL)
        until(lambda: sandbox._line.ended)
        with pytest.raises(SandboxLost):
            sandbox.exec("true")


def test_they_are_made_by_themselves_and_a_damaged_one_does_not_count(cluster: Any, tmp_path: Path) -> None:
    policy = Checkpoints(f"file://{tmp_path}/store", every=0.2)
    with cluster.sandbox(checkpoints=policy, timeout=60) as sandbox:
        sandbox.write_text("file", "content")
        place = Path(tmp_path, "store", sandbox._saving.name)
        until(lambda: place.is_dir() and len([one for one in place.iterdir() if one.name.isdecimal()]) >= 2)
        sandbox._saving._ended.set()
        sandbox.save()
        (place / "999999999999").write_bytes(b'{"version": 1, "digest": "no"}\nhalf')
        os.kill(agent_of(cluster, sandbox.node)["pid"], signal.SIGKILL)
        until(lambda: sandbox._line.ended)
        assert sandbox.read_text("file") == "content"


def test_a_store_without_its_package_says_so() -> None:
    with pytest.raises(SandboxError, match="cannot be kept at"):
        Checkpoints("nowhere://bucket/place")
