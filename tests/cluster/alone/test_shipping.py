"""Records go on being shipped when a token expires, or the one who keeps them is in trouble for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.audit.received import ReceivedRecords
from sandbox.cluster import shipping
from tests.cluster.alone.agents import Leased, agents
from tests.pool.waiting import until
from tests.sandboxes import home

__all__ = ["home"]
KEEPER, NODE = "1" * 40, "2" * 40


def kept(home: Path, node: str) -> str:
    file = home / "cluster-records" / node[:12] / "audit.jsonl"
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
