"""Sandboxes on the three nodes of a Ray cluster."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from contextlib import suppress
from itertools import product
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from sandbox import ConfigError, Denied, SandboxClosed, SandboxError, SandboxLost
from tests.cluster.three_nodes import CPUS, ThreeNodes
from tests.pool.waiting import until

VALUE = "sk-cluster-secret-5f0c1d8e7b"


def agent_of(cluster: Any, node: str) -> dict[str, Any]:
    return next(one for one in cluster.nodes() if one["node"] == node)


def alive(id: str, home: str) -> bool:
    """Whether the guest of a sandbox runs, as this machine sees it."""
    from sandbox.registry.registry import entries

    homes = [os.path.join(home, "nodes", one) for one in os.listdir(os.path.join(home, "nodes"))]
    return any(one.id == id and one.running for place in homes for one in entries(place))


def test_a_sandbox_of_the_cluster_works_as_any_other(cluster: Any) -> None:
    with cluster.sandbox({"environment": {"set": {"WHO": "ann"}}}) as sandbox:
        assert sandbox.exec("echo $WHO", check=True).stdout == "ann\n"
        sandbox.write_text("file", "content")
        assert sandbox.read_text("file") == "content"
        assert sandbox.engine == "bubblewrap"
        with sandbox.spawn(["cat"]) as process:
            process.write(b"through")
            process.close_stdin()
            assert b"".join(chunk.data for chunk in process.chunks()) == b"through"
    with pytest.raises(SandboxClosed) as closed:
        sandbox.exec("true")
    assert not isinstance(closed.value, SandboxLost)


def test_it_ends_with_its_close_and_its_place_is_free_again(cluster: Any, machines: ThreeNodes) -> None:
    for _ in range(4):
        with cluster.sandbox(cpus=CPUS, timeout=60) as sandbox:
            assert alive(sandbox.id, machines.home)
        assert not alive(sandbox.id, machines.home)


def test_who_closes_one_and_starts_the_next_goes_on_in_its_place(cluster: Any) -> None:
    groups, nodes = set(), set()
    for _ in range(10):
        with cluster.sandbox() as sandbox:
            groups.update(held())
            nodes.add(sandbox.node)
    assert len(groups) < 10
    with cluster.sandbox() as first, cluster.sandbox() as second:  # two at a time are two places
        assert len(held()) == 2 and first.id != second.id
    until(lambda: not held())  # and nobody keeps one for long


def test_who_goes_on_in_its_place_keeps_nobody_waiting(cluster: Any, machines: ThreeNodes) -> None:
    from sandbox.cluster import Cluster

    others = [cluster.sandbox(cpus=CPUS, timeout=60) for _ in range(2)]
    got: list[Any] = []
    with Cluster(machines.address) as busy:
        busy.sandbox(cpus=CPUS, timeout=60).close()
        waiting = Thread(target=lambda: got.append(cluster.sandbox(cpus=CPUS, timeout=60)))
        waiting.start()
        until(lambda: cluster.waiting() or got)
        while not got and waiting.is_alive():
            with suppress(SandboxError):
                busy.sandbox(cpus=CPUS, timeout=0.5).close()
        waiting.join()
        assert got
        for one in (*others, *got):
            one.close()


def held() -> set[str]:
    """The places that Ray has given to anybody."""
    from ray.util.placement_group import placement_group_table

    return {id for id, one in placement_group_table().items() if one["state"] != "REMOVED"}


def test_calls_of_an_agent_do_not_wait_for_one_another(cluster: Any) -> None:
    import ray

    with cluster.sandbox() as sandbox:
        agent = cluster._nodes.agent(sandbox.node)
        busy = agent.__ray_call__.remote(lambda self: self._ended.wait(60))
        assert ray.get(agent.status.remote(), timeout=30)["node"] == sandbox.node
        ray.cancel(busy)


def test_when_the_cluster_is_full_one_waits_and_knows_its_place(cluster: Any) -> None:
    held = [cluster.sandbox(cpus=CPUS, timeout=60) for _ in range(3)]
    assert len({one.node for one in held}) == 3
    with pytest.raises(SandboxError, match="number 1 in the queue"):
        cluster.sandbox(cpus=CPUS, timeout=1.5)
    positions: list[int] = []
    got: list[Any] = []

    def ask() -> None:
        got.append(cluster.sandbox(cpus=CPUS, on_wait=positions.append))

    waiting = Thread(target=ask)
    waiting.start()
    until(lambda: positions)
    assert positions[0] == 1 and cluster.waiting() == 1
    held.pop().close()
    waiting.join(60)
    assert got[0].exec("echo at last").stdout == "at last\n"
    for one in (*held, *got):
        one.close()


def test_what_the_cluster_does_not_have_is_waited_for_and_not_guessed(cluster: Any) -> None:
    with pytest.raises(SandboxError, match="no node had room"):
        cluster.sandbox({"engine": "qemu"}, timeout=1)


def test_an_agent_that_is_killed_takes_its_sandboxes_along_and_comes_back(cluster: Any, machines: ThreeNodes) -> None:
    sandbox = cluster.sandbox()
    others = [cluster.sandbox(cpus=1) for _ in range(3)]
    others = [one for one in others if one.node != sandbox.node]
    failed: list[BaseException] = []

    def run() -> None:
        try:
            sandbox.exec("sleep 1000")
        except SandboxError as problem:
            failed.append(problem)

    thread = Thread(target=run)
    thread.start()
    until(lambda: sandbox.processes())
    os.kill(agent_of(cluster, sandbox.node)["pid"], signal.SIGKILL)
    thread.join(60)
    assert [type(one) for one in failed] == [SandboxLost]
    with pytest.raises(SandboxLost):
        sandbox.exec("true")
    until(lambda: not alive(sandbox.id, machines.home))
    assert [one.exec("echo undisturbed").stdout for one in others] == ["undisturbed\n"] * len(others)
    until(lambda: "pid" in agent_of(cluster, sandbox.node))
    again = [cluster.sandbox(timeout=60) for _ in range(6)]
    assert all(one.exec("echo back").stdout == "back\n" for one in again)
    for one in (*again, *others, sandbox):
        one.close()


def test_a_node_that_is_killed_loses_its_sandboxes_and_no_others(cluster: Any, machines: ThreeNodes) -> None:
    doomed = machines.add()
    node = doomed.node_id
    until(lambda: any(one["node"] == node for one in cluster.nodes()))
    made: list[Any] = []
    while not any(one.node == node for one in made):
        made.append(cluster.sandbox(cpus=1, timeout=120))
    machines.ray.remove_node(doomed, allow_graceful=False)
    lost = [one for one in made if one.node == node]
    for one in lost:
        with pytest.raises(SandboxLost):
            one.exec("sleep 1000")
    until(lambda: not any(alive(one.id, machines.home) for one in lost))
    assert all(one.exec("echo here").stdout == "here\n" for one in made if one.node != node)
    for one in made:
        one.close()


def test_a_client_that_is_killed_leaves_nothing(cluster: Any, machines: ThreeNodes) -> None:
    script = (
        "import sys, time; from sandbox.cluster import Cluster\n"
        f"sb = Cluster({machines.address!r}).sandbox(cpus=2)\n"
        "print(sb.id, flush=True); sb.exec('sleep 1000')"
    )
    client = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    id = client.stdout.readline().strip()
    assert alive(id, machines.home)
    client.kill()
    client.wait()
    until(lambda: not alive(id, machines.home))
    held = [cluster.sandbox(cpus=CPUS, timeout=120) for _ in range(3)]  # its place is free again, too
    for one in held:
        one.close()


def test_secrets_are_nowhere_in_ray(cluster: Any, machines: ThreeNodes) -> None:
    secrets = {"KEY": {"value": VALUE, "hosts": ["api.test"]}}
    config = {"network": {"secrets": secrets}, "environment": {"set": {"KEY": "${KEY}", "PLAIN": f"x{VALUE}"}}}
    with cluster.sandbox(config) as sandbox:
        assert sandbox.exec("echo $KEY").stdout.startswith("SANDBOX_PLACEHOLDER_")
        looked = 0
        import ray

        session = ray._private.worker._global_node.get_session_dir_path()
        for directory, _, files in os.walk(session):
            for name in files:
                path = os.path.join(directory, name)
                if os.path.isfile(path):
                    looked += 1
                    with open(path, "rb") as file:
                        assert VALUE.encode() not in file.read(), path
        assert looked > 10
        for pid in (one for one in os.listdir("/proc") if one.isdigit() and int(one) != os.getpid()):
            assert VALUE.encode() not in words_of(pid), f"the arguments of {pid}"
        servers = [pid for pid in os.listdir("/proc") if pid.isdigit() and rays_own(pid)]
        assert len(servers) >= 4  # one for the cluster, one for each node
        if os.geteuid() == 0:
            for pid in servers:
                assert not in_memory(pid, VALUE.encode()), f"the memory of {pid}"


def words_of(pid: str) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def rays_own(pid: str) -> bool:
    """The stores, and what collects logs and serves the dashboard: all but workers, of which one is our agent."""
    return b"/site-packages/ray/" in words_of(pid).split(b"--")[0]


def in_memory(pid: str, value: bytes) -> bool:
    """Whether a process has it in memory that it writes: its own, and the object store's."""
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as file:
        ranges = [line.split()[:2] for line in file if "[v" not in line]
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for place, mode in ranges:
            start, end = (int(one, 16) for one in place.split("-"))
            if not mode.startswith("rw"):
                continue
            try:
                memory.seek(start)
                while start < end:
                    data = memory.read(min(2**24, end - start))
                    if not data or value in data:
                        break
                    start += len(data)
                if data and value in data:
                    return True
            except OSError:
                continue
    return False


def leaser(cluster: Any) -> tuple[bytes, str]:
    return cluster._identity.authority, cluster._identity.digest


def lease(cluster: Any) -> tuple[str, bytes, str, str, int]:
    reservation = cluster._nodes.reserve({"CPU": 0.1}, 60, None)
    try:
        return cluster._nodes.ask(reservation.node, "lease", *leaser(cluster))  # type: ignore[no-any-return]
    finally:
        reservation.release()


def test_a_client_without_a_certificate_is_refused(cluster: Any) -> None:
    from sandbox.cluster.identity import Identity

    url, authority, token, _, port = lease(cluster)
    stranger = Identity("stranger").for_client(authority)
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.load_verify_locations(cadata=authority.decode())
    parts = urlsplit(url)
    http = f"GET /v1/sandboxes HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    direct = json.dumps({"token": token}).encode() + b"\n"
    for context, (to, asked) in product((stranger, nobody), ((parts.port, http), (port, direct))):
        heard = b""
        try:
            raw = socket.create_connection((parts.hostname, to), 30)
            with raw, context.wrap_socket(raw, server_hostname=parts.hostname) as line:
                line.sendall(asked)
                heard = line.recv(100)
        except (ssl.SSLError, ConnectionError):
            pass
        assert heard == b""


def test_a_token_is_good_for_one_sandbox_and_no_other(cluster: Any) -> None:
    from sandbox.client import Client
    from sandbox.cluster.cluster import _Way

    way = _Way(*lease(cluster))
    with cluster.sandbox(resources={"one": 0.1}) as other:
        first = Client({}, connection=cluster._lines.connect(way), create=True)
        with first:
            with pytest.raises(Denied):
                Client({}, connection=cluster._lines.connect(way), create=True)
            with pytest.raises(SandboxError):
                cluster._lines.connect(way, other.id)


def test_a_drained_node_gets_no_further_sandbox(cluster: Any) -> None:
    with cluster.sandbox() as sandbox:
        cluster.drain(sandbox.node[:16])
        try:
            assert agent_of(cluster, sandbox.node)["draining"]
            assert sandbox.exec("echo goes on").stdout == "goes on\n"
            with pytest.raises(SandboxError, match="is being drained"):
                cluster._nodes.ask(sandbox.node, "lease", *leaser(cluster))
            others = [cluster.sandbox(timeout=60) for _ in range(6)]
            assert sandbox.node not in {one.node for one in others}
            for one in others:
                one.close()
        finally:
            cluster.drain(sandbox.node, False)


def test_a_secret_from_the_environment_is_this_process_own(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"network": {"secrets": {"KEY": {"from_env": "ONLY_HERE", "hosts": ["api.test"]}}}}
    with pytest.raises(ConfigError, match="no variable 'ONLY_HERE'"):
        cluster.sandbox(config)
    monkeypatch.setenv("ONLY_HERE", VALUE)
    with cluster.sandbox({**config, "environment": {"set": {"KEY": "${KEY}"}}}) as sandbox:
        assert sandbox.exec("echo $KEY").stdout.startswith("SANDBOX_PLACEHOLDER_")


def test_the_command_shows_the_nodes(cluster: Any, machines: ThreeNodes) -> None:
    command = [sys.executable, "-m", "sandbox.cli.main", "cluster"]
    with cluster.sandbox() as sandbox:
        shown = subprocess.run([*command, "nodes", "--address", machines.address], capture_output=True, text=True)
        assert shown.returncode == 0, shown.stderr
        assert sandbox.node[:12] in shown.stdout
        asked = [*command, "status", "--json", "--address", machines.address]
        counted = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
        used = subprocess.run([*command, "top", "--address", machines.address], capture_output=True, text=True)
        assert sandbox.id in used.stdout and "PROCESSES" in used.stdout, used.stderr
        asked = [*command, "metrics", "--address", machines.address]
        page = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        assert f'sandbox_cluster_sandboxes{{node="{sandbox.node[:12]}"}} 1.0' in page
        assert counted["nodes"] >= 3 and counted["sandboxes"] >= 1 and counted["waiting"] == 0


def test_hooks_run_at_home(cluster: Any) -> None:
    asked: list[str] = []

    class Hooks:
        def on_request(self, request: Any) -> Any:
            asked.append(request.url)
            return request

    with cluster.sandbox({"network": {"allowed_hosts": ["api.test"]}}, hooks=Hooks()) as sandbox:
        sandbox.exec("curl -s http://api.test/ > /dev/null")
    assert asked and asked[0].startswith("http://api.test")
