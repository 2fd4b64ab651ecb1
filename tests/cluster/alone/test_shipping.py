"""Records go on being shipped when a token expires, or the one who keeps them is in trouble for a while."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sandbox.audit.received import ReceivedRecords
from sandbox.cluster import shipping
from sandbox.cluster.agent import Agent
from sandbox.cluster.records import Records
from tests.cluster.alone.agents import Leased, agents
from tests.pool.waiting import until
from tests.sandboxes import home

__all__ = ["home"]
KEEPER, NODE = "1" * 40, "2" * 40


def kept(home: Path, node: str) -> str:
    file = home / "cluster-records" / (node if "r" in node else node[:12]) / "audit.jsonl"
    return file.read_text() if file.exists() else ""


def test_a_token_that_expires_does_not_end_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "LATER", 0.05)
    with agents(KEEPER, NODE, keeper=KEEPER) as [keeper, node]:
        with Leased(node).sandbox() as first:
            until(lambda: first.id in kept(home, NODE))
        for token in keeper._readers.values():  # as if a day had passed
            keeper._server.tokens.forget(token)
        with Leased(node).sandbox() as second:
            until(lambda: second.id in kept(home, NODE))


def test_a_keeper_whose_disk_is_full_gets_the_rest_later(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "LATER", 0.05)
    take = ReceivedRecords.take
    full = [True]

    def failing(self: ReceivedRecords, name: str, lines: bytes) -> int:
        if full[0]:
            raise OSError(28, "No space left on device")
        return take(self, name, lines)

    monkeypatch.setattr(ReceivedRecords, "take", failing)
    with agents(KEEPER, NODE, keeper=KEEPER) as [_, node], Leased(node).sandbox() as sandbox:
        until(lambda: node.status()["record"])
        full[0] = False
        until(lambda: sandbox.id in kept(home, NODE) and not node.status()["record"])


def test_the_token_for_records_is_good_for_nothing_else(home: Path) -> None:
    from sandbox.cluster.identity import Identity
    from sandbox.cluster.line import AgentRefused, Line

    with agents(KEEPER, keeper=KEEPER) as [keeper]:
        mine = Identity("reader")
        url, authority, token = keeper.keeper(mine.authority, mine.digest)
        with Line(url, mine.for_client(authority), token) as line:
            assert isinstance(line.ask_json("GET", "/v1/cluster/records"), list)
            for path in ("/v1/audit", "/v1/sandboxes", "/metrics"):
                with pytest.raises(AgentRefused):
                    line.ask("GET", path)


def rolled_back(home: Path, node: str, saved: dict[str, bytes]) -> None:
    """As if a backup of the node's record had been put back."""
    for name, content in saved.items():
        (home / "nodes" / node[:12] / "audit" / name).write_bytes(content)


def saved(home: Path, node: str) -> dict[str, bytes]:
    directory = home / "nodes" / node[:12] / "audit"
    return {one.name: one.read_bytes() for one in directory.iterdir()}


class Feed:
    """A reader of a keeper's records, as `sandbox audit --cluster` has it."""

    def __init__(self, keeper: Agent) -> None:
        class Nodes:
            def keeper(self) -> str:
                return KEEPER

            def ask(self, node: str, method: str, *given: Any) -> Any:
                return keeper.keeper(*given)

        self.records = Records(Nodes())  # type: ignore[arg-type]
        self.seen: list[tuple[str, object]] = []
        self._sandboxes: set[str] = set()

    def has(self, sandbox: str) -> bool:
        found = self.records.new()
        self.seen += [(one["node"], one["hash"]) for one in found]
        self._sandboxes |= {str(one.get("sandbox")) for one in found}
        return sandbox in self._sandboxes


@pytest.mark.parametrize("restarted", [False, True])
def test_a_record_that_is_rolled_back_is_told_and_what_follows_is_still_sent(home: Path, restarted: bool) -> None:
    with agents(KEEPER, NODE, keeper=KEEPER) as [_, node]:
        Leased(node).sandbox().close()
        before = saved(home, NODE)
        for _ in range(5):
            with Leased(node).sandbox() as lost:
                pass
        until(lambda: kept(home, NODE).encode() == saved(home, NODE)["audit.jsonl"])
        if not restarted:
            rolled_back(home, NODE, before)
            with Leased(node).sandbox() as later:
                until(lambda: later.id in kept(home, f"{NODE[:12]}r1"))
    if restarted:
        rolled_back(home, NODE, before)
    with agents(KEEPER, NODE, keeper=KEEPER) as [keeper, node], Leased(node).sandbox() as last:
        until(lambda: last.id in kept(home, f"{NODE[:12]}r1"))
        assert "rolled back" in node.status()["record"] and lost.id in kept(home, NODE)
        feed = Feed(keeper)
        until(lambda: feed.has(last.id) and feed.has(lost.id))
        assert len(feed.seen) == len(set(feed.seen))  # what both have is shown once
        verdicts = feed.records.verdicts()
        assert "rolled back" in verdicts[NODE[:12]].problem and verdicts[f"{NODE[:12]}r1"]
        feed.records.close()


def test_a_record_that_was_removed_is_told(home: Path) -> None:
    with agents(KEEPER, NODE, keeper=KEEPER) as [_, node]:
        Leased(node).sandbox().close()
        until(lambda: kept(home, NODE).encode() == saved(home, NODE)["audit.jsonl"] != b"")
        shutil.rmtree(home / "nodes" / NODE[:12] / "audit")
        with Leased(node).sandbox() as later:
            until(lambda: later.id in kept(home, f"{NODE[:12]}r1"))
        assert "rolled back" in node.status()["record"]


def test_a_record_that_was_altered_is_told_at_its_node_too(home: Path) -> None:
    with agents(KEEPER, NODE, keeper=KEEPER) as [_, node]:
        Leased(node).sandbox().close()
        with open(home / "nodes" / NODE[:12] / "audit" / "audit.jsonl", "ab") as file:
            file.write(b'{"timestamp":"2026-01-01T00:00:00.000Z","type":"forged"}\n')
        until(lambda: "altered" in node.status()["record"])
        assert not (home / "cluster-records" / f"{NODE[:12]}r1").exists()
