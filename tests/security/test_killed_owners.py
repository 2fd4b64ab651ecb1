"""SIGKILL to any process of the chain, at any moment: no tenant, mount or socket is left after `sandbox prune`."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import until
from tests.sandboxes import Command, cli, home, program, rpc

__all__ = ["cli", "home", "rpc"]

MARK = "SANDBOX_TEST_MARK"


def marked(mark: str) -> set[int]:
    """The processes that carry `mark` in their environment or arguments, as the host sees them."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            for file in ("environ", "cmdline"):
                try:
                    if mark.encode() in Path("/proc", name, file).read_bytes():
                        found.add(int(name))
                except OSError:
                    pass
    return found


def descendants(pid: int) -> list[int]:
    """`pid` and everything below it."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path("/proc", name, "stat").read_text()
            except OSError:
                continue
            children.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def sockets(home: Path) -> Iterator[Path]:
    return (path for path in home.rglob("*") if path.is_socket())


def mounts(own: Path) -> set[str]:
    """The host's, without those that tests beside this one make in directories of their own."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {line for line in lines if "/pytest-of-" not in line or str(own) in line}


def wait_until_gone(mark: str) -> None:
    """The kernel ends a namespace's processes by itself; this waits for each of them to be gone."""
    for pid in marked(mark):
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        import select

        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        assert poll.poll(20_000), f"process {pid} is still there"
        os.close(descriptor)


@pytest.mark.process_walls("the host sees no process of a machine; tests/engines/test_qemu_killed.py kills that chain")
@pytest.mark.parametrize("victim", range(4))
def test_killing_any_process_of_a_running_sandbox_leaves_nothing(
    cli: Command, home: Path, rpc: list[str], victim: int
) -> None:
    mark = f"{MARK}_{os.urandom(6).hex()}"
    before = mounts(home.parent)
    with subprocess.Popen(rpc, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin and server.stdout
        server.stdin.write(b'{"jsonrpc": "2.0", "method": "create", "id": 1}\n')
        command = f"MARK={mark} setsid sleep 1000 & MARK={mark} sleep 1000"
        asked = {"jsonrpc": "2.0", "method": "exec_pipe", "params": {"command": ["sh", "-c", command]}, "id": 2}
        server.stdin.write(json.dumps(asked).encode() + b"\n")
        server.stdin.flush()
        while b'"pid"' not in server.stdout.readline():
            pass
        until(lambda: len(marked(mark)) >= 3)
        chain = descendants(server.pid)
        assert len(chain) >= 4
        os.kill(chain[victim], signal.SIGKILL)
        if victim:  # somebody inside: the owner lives, and its client leaves
            server.stdin.close()
        server.wait(timeout=30)
    wait_until_gone(mark)
    done = cli("prune")
    assert done.returncode == 0, done.stderr
    assert os.listdir(home / "vms") == []
    assert list(sockets(home)) == []
    assert marked(mark) == set()
    assert mounts(home.parent) == before


def test_killing_the_owner_at_any_moment_of_its_start_leaves_nothing(cli: Command, home: Path) -> None:
    chance = random.Random(5)
    mark = f"{MARK}_{os.urandom(6).hex()}"
    begun = time.monotonic()
    assert cli("run", "--", "true").returncode == 0
    a_start = time.monotonic() - begun  # here and now, so that the moments to kill at are spread over all of it
    for _ in range(25):
        words = ["run", "--", "sh", "-c", f"sleep 1000; : {mark}"]
        process = subprocess.Popen([*program(), *words], stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=chance.uniform(0.0, a_start * 1.2))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    wait_until_gone(mark)
    assert cli("prune").returncode == 0
    assert os.listdir(home / "vms") == []
    assert list(sockets(home)) == []


def test_a_client_that_dies_ends_its_sandbox(cli: Command, home: Path) -> None:
    mark = f"{MARK}_{os.urandom(6).hex()}"
    script = f"""
import os, signal
from sandbox.client import Client
client = Client(command={[*program(), "--rpc"]!r})
client.spawn("MARK={mark} sleep 1000 & MARK={mark} sleep 1000")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    wait_until_gone(mark)
    while json.loads(cli("list", "--running", "--json").stdout):
        pass
    (entry,) = json.loads(cli("list", "--json").stdout)
    assert entry["status"] == "stopped", "an end that was noticed is not a crash"
