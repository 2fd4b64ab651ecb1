"""A sandbox's own limits hold for all that go on from it: forks, what is restored, what a manager starts again."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox, SandboxManager
from sandbox.config.model import Config
from sandbox.signing.ledger import Ledger
from tests.signing.keys import POLICY, Bench, transaction
from tests.signing.signers import RunningSigner
from tests.signing.test_signer import ask

pytestmark = pytest.mark.walls


@pytest.fixture
def signer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningSigner]:
    policy = {**POLICY, "max_per_hour": 100, "max_per_day": 100, "per_sandbox": {"max_per_hour": 2}}
    running = RunningSigner(tmp_path / "h", policy)
    monkeypatch.setenv("SANDBOX_HOME", str(running.home))
    yield running
    running.end()


def config(signer: RunningSigner, project: Path) -> dict[str, Any]:
    project.mkdir(exist_ok=True)
    return {"signing": signer.policy, "filesystem": {"root": str(project), "programs": [sys.executable]}}


def signed(sandbox: Sandbox) -> bool:
    id = f"r-{os.urandom(8).hex()}"
    return ask(sandbox, "/sign", {"requestId": id, "createdAt": 1, **transaction()})[0] == 200


def test_a_fork_and_what_is_restored_share_the_counts_of_their_origin(signer: RunningSigner, tmp_path: Path) -> None:
    with Sandbox(config(signer, tmp_path / "one")) as first:
        assert signed(first)
        (fork,) = first.fork()
        with fork:
            assert signed(fork)
            (again,) = fork.fork()
            with again:
                assert not signed(again) and not signed(fork) and not signed(first)
                again.checkpoint("saved")
    with Sandbox.restore("saved") as restored:
        assert not signed(restored)
    with Sandbox(config(signer, tmp_path / "two")) as other:
        assert signed(other)


def test_a_managed_sandbox_that_is_started_again_does_not_start_over(signer: RunningSigner, tmp_path: Path) -> None:
    manager = SandboxManager(Config.read(config(signer, tmp_path / "one")))
    try:
        manager.start()
        for again in (manager.recover, manager.start):
            assert manager.sandbox is not None and signed(manager.sandbox)
            manager.stop()
            again()
        assert manager.sandbox is not None and not signed(manager.sandbox)
    finally:
        manager.stop()


def test_a_ledger_of_before_is_read_with_its_counts(tmp_path: Path) -> None:
    policy = {**POLICY, "per_sandbox": {"max_per_hour": 1}}
    bench = Bench(tmp_path, policy)
    assert bench.ask(asker="sandbox:a").signature
    bench.ledger.close()
    base = sqlite3.connect(tmp_path / "ledger.db")
    base.execute("ALTER TABLE requests DROP COLUMN family")
    base.commit()
    base.close()
    Ledger(str(tmp_path / "ledger.db")).close()
    later = Bench(tmp_path, policy)
    assert later.ask(id="later", asker="sandbox:a").decision.rule == "hourly"
