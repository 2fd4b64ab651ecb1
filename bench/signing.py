"""A signature within the policy, asked for at the signer's socket as the gate does, beside eth-account alone."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.harness import Bench, Row
from sandbox import Sandbox
from sandbox.policy.signing.requests import read_request
from sandbox.signing import client
from sandbox.signing.backends.ethereum import sign
from sandbox.signing.calls import keccak
from tests.signing.keys import KEY, POLICY, transaction
from tests.signing.signers import RunningSigner

MOST = 100_000


def rows(bench: Bench) -> Iterator[Row]:
    """The signer runs from this tree, because `bench` installs no extras."""
    policy = {**POLICY, "max_per_hour": MOST, "max_per_day": MOST, "max_spend_per_day": "1000 ether"}
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp") as place:
        os.environ["SANDBOX_HOME"] = os.path.join(place, "home")
        bench.log("signing")
        os.mkdir(os.path.join(place, "project"))
        signer = RunningSigner(Path(place, "home"), policy)
        try:
            with Sandbox({"filesystem": {"root": os.path.join(place, "project")}}) as asker:
                yield _signature(asker.id, 5 * bench.repetitions)
        finally:
            signer.end()
            del os.environ["SANDBOX_HOME"]


def _signature(asker: str, times: int) -> Row:
    request = read_request("transaction", transaction(), keccak)
    alone = _median(lambda at: sign(KEY, request), times)
    ours = _median(lambda at: _asked(asker, at), times)
    more = ours - alone
    figures = (f"{ours:.1f} ms", f"{more:.1f} ms beyond eth-account ({alone:.1f} ms)")
    return Row("**a signature within the policy**", *figures, budget="≤ 10 ms beyond", held=more <= 10)


def _asked(asker: str, at: int) -> None:
    """In the name of a sandbox of this process, as its gate does."""
    told = client.ask(
        {
            "op": "submit",
            "id": f"b{at}",
            "kind": "transaction",
            "request": transaction(nonce=at),
            "asker": f"sandbox:{asker}",
            "sandbox": asker,
        }
    )
    assert told["success"], told


def _median(act: Callable[[int], object], times: int) -> float:
    spent = []
    for at in range(times + 1):
        began = time.perf_counter()
        act(at)
        spent.append(time.perf_counter() - began)
    return statistics.median(spent[1:]) * 1000
