"""What an agent grants, and what it keeps: leases, projects, its own server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.cluster import agent as agent_module
from sandbox.cluster import leases, travel
from sandbox.cluster.agent import Agent
from sandbox.cluster.blobs import BlobStore
from sandbox.cluster.identity import Identity
from sandbox.cluster.line import AgentRefused, Line
from sandbox.errors import Denied, SandboxError
from sandbox.server.app import application
from tests.cluster.alone.agents import Leased, agents
from tests.network.room import Origin, origin
from tests.pool.waiting import until
from tests.sandboxes import home

__all__ = ["home", "origin"]
ROOT = Path(__file__).parents[3]
NODE = "a1b2c3d4e5f6" * 4


def workspaces(home: Path) -> list[Path]:
    place = home / "nodes" / f"{NODE[:12]}-workspaces"
    return list(place.iterdir()) if place.exists() else []


def entries(home: Path) -> list[str]:
    place = home / "nodes" / NODE[:12] / "vms"
    return [one.name for one in place.iterdir()] if place.exists() else []


def test_a_lease_reaches_no_other_sandbox_before_it_has_its_own(home: Path) -> None:
    with agents(NODE) as [agent]:
        first, second = Leased(agent), Leased(agent)
        with first.sandbox() as other:
            with second.line() as line:
                for method, path in (
                    ("GET", "/v1/sandboxes"), ("GET", f"/v1/sandboxes/{other.id}"), ("GET", "/v1/audit"),
                    ("DELETE", f"/v1/sandboxes/{other.id}"), ("GET", "/metrics"), ("POST", "/v1/panic"),
                    ("GET", f"/v1/sandboxes/{other.id}/files"), ("GET", "/v1/cluster/records"),
                ):  # fmt: skip
                    with pytest.raises(AgentRefused) as refused:
                        line.ask(method, path)
                    assert refused.value.status in (401, 403, 404, 405), (method, path)
            with pytest.raises(SandboxError):
                second.connect(other.id)
            with pytest.raises(SandboxError):
                second.web_socket(f"/v1/sandboxes/{other.id}/rpc")
            with second.sandbox() as own:
                assert own.exec("echo mine").stdout == "mine\n"
            assert other.exec("echo still here").stdout == "still here\n"


def test_a_token_is_good_for_nobody_but_the_client_that_it_was_given_to(home: Path) -> None:
    """Tokens travel by way of Ray: who reads one there has no use for it."""
    with agents(NODE) as [agent]:
        owner, thief = Leased(agent), Leased(agent)
        thief.token = owner.token
        with pytest.raises(SandboxError):
            thief.sandbox()
        with owner.line() as line:
            assert line.ask_json("POST", "/v1/cluster/missing", {"digests": []}) == {"digests": []}
        with owner.sandbox() as sandbox:
            with pytest.raises(SandboxError):
                thief.connect(sandbox.id)
            with pytest.raises(SandboxError):
                thief.web_socket(f"/v1/sandboxes/{sandbox.id}/rpc")
            with thief.line() as line, pytest.raises(AgentRefused) as refused:
                line.ask_json("POST", "/v1/cluster/missing", {"digests": []})
            assert refused.value.status == 401
            assert sandbox.exec("echo mine").stdout == "mine\n"
        reader, other = Identity("reader"), Identity("other")
        with agents("f" * 40, keeper="f" * 40) as [keeper]:
            url, authority, token = keeper.keeper(reader.authority, reader.digest)
            keeper.keeper(other.authority, other.digest)
            with Line(url, other.for_client(authority), token) as line, pytest.raises(AgentRefused):
                line.ask("GET", "/v1/cluster/records")
            with Line(url, reader.for_client(authority), token) as line:
                line.ask("GET", "/v1/cluster/records")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may undo niceness")
def test_sandboxes_do_not_inherit_the_niceness_of_rays_workers(home: Path) -> None:
    script = (
        "import os; os.nice(15); from tests.cluster.alone.agents import Leased, agents\n"
        f"with agents('{NODE}') as [agent], Leased(agent).sandbox() as sandbox: print(sandbox.exec('nice').stdout)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "RAY_worker_niceness"}
    told = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert int(told.stdout) <= 0, told.stderr


@pytest.mark.parametrize("holder", ["", "é" * 64, "F" * 64, "0" * 63 + "\n"])
def test_an_agent_leases_nothing_to_nobody(home: Path, holder: str) -> None:
    with agents(NODE) as [agent], pytest.raises(SandboxError, match="digest"):
        agent.lease(Identity("x").authority, holder)


def test_the_gate_of_a_leased_sandbox_can_be_the_clients(home: Path, origin: Origin) -> None:
    config = {"network": {"gate": "client", "localhost_ports": [origin.port]}}
    with agents(NODE) as [agent], Leased(agent).sandbox(config) as sandbox:
        got = sandbox.exec(f"curl -sS http://127.0.0.1:{origin.port}/x", check=True)
        assert got.stdout.startswith("GET /x")
        blocked = sandbox.exec(f"curl -sS --max-time 30 {agent._url()}/v1/cluster/alive")
        assert blocked.exit_code != 0 or "ok" not in blocked.stdout


def test_a_lease_restores_nothing_but_its_one_sandbox(home: Path) -> None:
    with agents(NODE) as [agent]:
        leased = Leased(agent)
        with leased.sandbox():
            spare = Leased(agent)
            with spare.sandbox():
                pass
            with pytest.raises((Denied, SandboxError)):
                spare.connect().call("restore", {"checkpoint": "any", "config": {}})


def test_a_sent_project_is_removed_with_its_sandbox(home: Path) -> None:
    project = home.parent / "project"
    (project / "file").write_text("content")
    with agents(NODE) as [agent]:
        leased = Leased(agent)
        sent = travel.send(str(project), leased.url, leased.context, leased.token, {})
        config = {"filesystem": {"root": sent.root, "overlay": True}}
        with leased.sandbox(config) as sandbox:
            assert sandbox.exec("cat file; echo more > other").stdout == "content"
            agent._leases.sweep()
            assert [str(one) for one in workspaces(home)] == [sent.root] and sandbox.id in entries(home)
        agent.release(leased.id)
        until(lambda: not workspaces(home) and sandbox.id not in entries(home))


def test_a_client_that_ends_without_a_word_leaves_no_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "SWEEP", 0.05)
    with agents(NODE) as [agent]:
        leased = Leased(agent)
        sandbox = leased.sandbox()
        sandbox.write_text("file", "content")
        assert workspaces(home)
        sandbox._connection.abandon()
        until(lambda: not workspaces(home) and not entries(home))
        assert agent._server.leases == {} and agent._server.tokens.access(leased.id) is None
        sandbox._connection.close()


def test_a_project_whose_sandbox_was_never_made_is_removed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = home.parent / "project"
    (project / "file").write_text("content")
    with agents(NODE) as [agent]:
        leased = Leased(agent)
        travel.send(str(project), leased.url, leased.context, leased.token, {})
        agent._leases.sweep()
        assert workspaces(home)
        monkeypatch.setattr(leases, "UNUSED", -1.0)
        agent._leases.sweep()
        assert not workspaces(home)


def test_a_project_for_a_lease_that_has_ended_leaves_nothing(home: Path) -> None:
    with agents(NODE) as [agent]:
        leased = Leased(agent)
        ended = agent._leases
        place = agent._server.workspace("project")
        ended.release(leased.id)
        with pytest.raises(SandboxError, match="lease has ended"):
            ended.use(leased.id, place)
        assert not workspaces(home)


def test_what_a_killed_agent_left_is_removed_by_the_next(home: Path) -> None:
    place = home / "nodes" / f"{NODE[:12]}-workspaces" / "project-1234"
    place.mkdir(parents=True)
    (place / "file").write_text("content")
    (home / "nodes" / NODE[:12] / "vms" / "vm-00000000" / "overlay" / "upper").mkdir(parents=True)
    (home / "nodes" / NODE[:12] / "vms" / "vm-00000000" / "overlay" / "upper" / "file").write_text("changed")
    with agents(NODE):
        assert not workspaces(home) and not entries(home)


def test_another_agent_removes_nothing_where_an_agent_lives(home: Path) -> None:
    place = str(home / "nodes" / NODE[:12])
    with agents(NODE) as [agent]:
        with Leased(agent).sandbox() as sandbox:
            leases.clean_ended(place)
            assert workspaces(home) and sandbox.exec("echo here > file; cat file").stdout == "here\n"
        (home / "nodes" / f"{NODE[:12]}-workspaces" / "left").mkdir()
    assert workspaces(home)
    leases.clean_ended(place)
    assert not workspaces(home)


def test_content_that_was_not_used_for_long_makes_room(tmp_path: Path) -> None:
    import hashlib

    blobs = BlobStore(str(tmp_path))
    contents = [bytes([number]) * 1000 for number in range(4)]
    digests = [hashlib.sha256(one).hexdigest() for one in contents]
    for digest, content in zip(digests, contents, strict=True):
        blobs.add(digest, content)
    for age, digest in enumerate(digests):
        os.utime(tmp_path / digest, (1000 - age, 1000 - age))
    assert blobs.missing(digests[3:]) == []  # asked for, so used just now
    blobs.trim(2000)
    assert blobs.missing(digests) == digests[1:3]
    blobs.trim(0)
    assert blobs.missing([digests[3]]) == []  # somebody is about to use it


def test_an_agent_does_not_start_in_the_directory_of_another_that_lives(tmp_path: Path) -> None:
    """It would remove the other's sandboxes as those of one that was killed."""
    living = leases.hold(str(tmp_path))
    with pytest.raises(SandboxError, match="another agent uses"):
        leases.hold(str(tmp_path), patience=0)
    os.close(living)
    os.close(leases.hold(str(tmp_path)))


def test_an_agent_whose_server_fails_says_so_and_does_not_wait(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no application")

    monkeypatch.setattr(agent_module, "application", broken)
    with pytest.raises(SandboxError, match="server cannot start: no application"):
        Agent(NODE, "127.0.0.1")


def test_an_agent_whose_server_does_not_come_up_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(server: Any, more: Any) -> Any:
        server.tail.start = None  # what the application awaits before it serves
        return application(server, more)

    monkeypatch.setattr(agent_module, "application", refusing)
    with pytest.raises(SandboxError, match="server cannot start"):
        Agent(NODE, "127.0.0.1")


def test_an_agent_whose_server_ends_gives_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gave_up: list[bool] = []
    monkeypatch.setattr(Agent, "_give_up", lambda _: gave_up.append(True))
    with agents(NODE) as [agent]:
        agent._running.should_exit = True
        until(lambda: gave_up)
