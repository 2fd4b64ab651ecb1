"""An agent that hangs is noticed; checkpoints of any allowed size are restored; one failure does not stop the rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.client import Client
from sandbox.cluster import agent_watch, checkpoints
from sandbox.cluster.agent_watch import AgentWatch
from sandbox.cluster.cluster_sandbox import ClusterSandbox, closed
from sandbox.errors import SandboxError, SandboxLost
from tests.cluster.alone.agents import Leased, agents
from tests.pool.waiting import until
from tests.sandboxes import home, rpc

__all__ = ["home", "rpc"]
NODE = "3" * 40


def test_an_agent_that_hangs_is_given_up_and_one_that_answers_is_not(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_watch, "PAUSE", 0.05)
    monkeypatch.setattr(agent_watch, "ANSWER", 3.0)  # a busy machine answers in that time
    script = (
        "import sys; from sandbox.cluster.agent import Agent\n"
        f"a = Agent('{'4' * 40}', '127.0.0.1')\n"
        "print(a._url(), flush=True); sys.stdout.buffer.write(a._identity.authority); sys.stdout.flush()\n"
        "a.lease(sys.stdin.buffer.read(), '0' * 64); print('ready', flush=True)\n"
        "import time; time.sleep(1000)"
    )
    with agents(NODE) as [agent]:
        healthy = Leased(agent)
        other = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert other.stdin is not None and other.stdout is not None
        try:
            url = other.stdout.readline().decode().strip()
            assert url.startswith("https://127.0.0.1:")
            authority = b"".join(iter(other.stdout.readline, b"-----END CERTIFICATE-----\n"))
            authority += b"-----END CERTIFICATE-----\n"
            other.stdin.write(healthy.identity.authority)
            other.stdin.close()
            assert other.stdout.readline() == b"ready\n"
            lost: list[str] = []
            watch = AgentWatch(1.0)
            watch.add("healthy", healthy.url, healthy.context, lambda: lost.append("healthy"))
            watch.add("other", url, healthy.identity.for_client(authority), lambda: lost.append("other"))
            until(lambda: all(one._line is not None for one in watch._agents.values()))
            assert lost == []
            os.kill(other.pid, signal.SIGSTOP)
            until(lambda: lost)
            assert lost == ["other"] and list(watch._agents) == [healthy.url]
            watch.remove("healthy")
            assert watch._agents == {}
        finally:
            other.kill()
            other.wait()


def test_a_large_checkpoint_is_restored(home: Path, rpc: list[str]) -> None:
    config = {"filesystem": {"overlay": True}}
    with Client(config, command=rpc) as before:
        before.exec("head -c 60000000 /dev/urandom > large; echo small > ~/note", check=True)
        digest = before.exec("sha256sum large", check=True).stdout
        content = checkpoints.pack(before)
    with Client(config, command=rpc) as after:
        checkpoints.unpack(after, content)
        assert after.exec("sha256sum large; cat ~/note", check=True).stdout == f"{digest}small\n"


def test_a_long_list_of_changes_is_packed(home: Path, rpc: list[str]) -> None:
    """Its names do not fit one message, and `tar` writes before it has read them all."""
    config = {"filesystem": {"overlay": True}}
    long = "x" * 200
    with Client(config, command=rpc) as before:
        script = f"import os\nfor n in range(6000): open('{long}%d' % n, 'w').write('y' * 1000)"
        before.exec(["python3", "-c", script], check=True)
        content = checkpoints.pack(before)
    with Client(config, command=rpc) as after:
        checkpoints.unpack(after, content)
        assert after.exec("ls | wc -l").stdout.strip() == "6000"


def test_all_are_closed_whatever_happens_to_one() -> None:
    ended: list[int] = []

    def bad() -> None:
        raise OSError("first")

    def also_bad() -> None:
        raise ValueError("second")

    calls: list[Any] = [lambda: ended.append(1), bad, lambda: ended.append(2), also_bad, lambda: ended.append(3)]
    assert [str(one) for one in closed(calls)] == ["first", "second"]
    assert ended == [1, 2, 3]


def test_a_sandbox_that_cannot_release_its_place_is_closed_otherwise(home: Path) -> None:
    with agents(NODE) as [agent]:
        made = ClusterSandbox({}, connection=Leased(agent).connect(), create=True)
        done: list[str] = []

        def broken() -> None:
            raise RuntimeError("Ray is gone")

        made._release, made._forgotten = broken, lambda: done.append("forgotten")
        made._saving = SimpleNamespace(stop=lambda: None, forget=lambda: done.append("store"))  # type: ignore[assignment]
        with pytest.raises(RuntimeError, match="Ray is gone"):
            made.close()
        assert done == ["forgotten", "store"] and made._closed


class BrokenStore:
    """A store whose library raises errors of its own, as botocore does."""

    every = None

    def put(self, *_: object) -> None:
        raise LookupError("no route to the store")

    last = forget = put


def test_a_store_that_fails_is_a_sandbox_error_and_ends_nothing_else() -> None:
    policy: Any = BrokenStore()
    saving = checkpoints.Saving(policy, lambda: b"content")
    for call, kind in ((saving.now, SandboxError), (saving.last, SandboxLost), (saving.forget, SandboxError)):
        with pytest.raises(kind, match="no route to the store"):
            call()
