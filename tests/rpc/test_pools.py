"""A pool in another process: what `pool_get` hands out is the client's own, is never used twice, and ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import ClientPool, InvalidArgument, SandboxClosed, SandboxError
from sandbox.client import Client, attach
from sandbox.registry.registry import entries
from tests.pool.waiting import until

pytestmark = pytest.mark.walls


def alive(home: Path) -> set[str]:
    return {one.id for one in entries(str(home)) if one.running}


def test_sandboxes_are_built_ahead_and_handed_out_once(home: Path, rpc: list[str]) -> None:
    with ClientPool({"environment": {"set": {"WHO": "pool"}}}, size=2, command=rpc) as pool:
        until(lambda: pool.stats().ready == 2)
        before = alive(home)
        with pool.get(environment={"CASE": "7"}) as first, pool.get() as second:
            assert {first.id, second.id} == before
            assert first.exec("echo $WHO $CASE", check=True).stdout == "pool 7\n"
            assert second.exec("echo $WHO $CASE", check=True).stdout == "pool\n"
            first.write_text("/tmp/mine", "x")
            with pytest.raises(FileNotFoundError):
                second.read_text("/tmp/mine")
        until(lambda: not {first.id, second.id} & alive(home))
        with pytest.raises(SandboxClosed):
            first.exec("true")
        assert pool.stats().handed_out == 2 and pool.size == 2
    until(lambda: not alive(home))


def test_what_was_handed_out_ends_with_the_server(home: Path, rpc: list[str]) -> None:
    pool = ClientPool(size=1, command=rpc)
    sandbox = pool.get()
    assert sandbox.id in alive(home)
    pool.close()
    until(lambda: not alive(home))
    sandbox.close()


def test_many_items_each_in_a_sandbox_of_its_own(home: Path, rpc: list[str]) -> None:
    with ClientPool(size=2, command=rpc) as pool:
        outcomes = pool.map('test ! -e /tmp/x && touch /tmp/x && echo "$1"', ["a b", "c"]).results()
        assert [one.value.stdout for one in outcomes] == ["a b\n", "c\n"]


def test_errors_are_the_same_as_those_of_a_local_pool(home: Path, rpc: list[str]) -> None:
    with pytest.raises(InvalidArgument, match="size must be a number"):
        ClientPool(size=0, command=rpc)
    with ClientPool(size=1, command=rpc) as pool:
        with pytest.raises(InvalidArgument, match="have their project already"):
            pool.get(project=home)
        with pytest.raises(SandboxError, match="there is a pool here"):
            pool._connection.call("pool_open", {})


def test_a_sandbox_has_no_pool(home: Path, rpc: list[str]) -> None:
    with Client(command=rpc) as client:
        with pytest.raises(SandboxError, match="no pool yet"):
            client._connection.call("pool_stats", {})
        other = attach(client.id)
        with pytest.raises(SandboxError, match="needs a `sandbox --rpc` of its own"):
            other._connection.call("pool_open", {})
        other.close()
