"""Whatever is asked for, what comes back signed is a transaction that the policy allows, as the chain reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rlp  # type: ignore[import-untyped,unused-ignore]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.network.signing.quantities import BadParams, transaction
from tests.signing.keys import ADDRESS, CHAIN, ETHER, FOE, FRIEND, GWEI, POLICY, TOKEN, Bench
from tests.signing.keys import transaction as plain

MOST = {"max_per_hour": 10**6, "max_per_day": 10**6, "max_spend_per_day": str(10**30)}
WORDS = st.sampled_from(
    [FRIEND, FOE, TOKEN, FRIEND.upper(), "0x", "0x00", "0xa9059cbb", "", "0", "1", "-1", "0x1", "1e3", str(10**17),
     str(10**17 + 1), str(ETHER), str(GWEI), str(2**64), "21000", "0x5208", "\u0661", "1 ", None]
)  # fmt: skip
VALUES = st.one_of(
    WORDS, st.integers(-2, 2**70), st.booleans(), st.text(max_size=8), st.lists(st.integers(), max_size=2)
)
FIELDS = ["to", "value", "data", "chainId", "nonce", "gasLimit", "maxFeePerGas", "maxPriorityFeePerGas", "gasPrice",
          "gas", "input", "type", "accessList", "from"]  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(Path(tmp_path_factory.mktemp("fuzz")), {**POLICY, **MOST})


def judge_as_the_chain_would(raw: str) -> None:
    """Without any of our code."""
    data = bytes.fromhex(raw[2:])
    if data[0] == 2:
        chain, _, tip, fee, gas, to, value, call, access = rlp.decode(data[1:])[:9]
        assert int.from_bytes(chain, "big") == CHAIN
        assert access == []
        assert int.from_bytes(tip, "big") <= int.from_bytes(fee, "big")
    else:
        _, fee, gas, to, value, call, v, _, _ = rlp.decode(data)
        assert int.from_bytes(v, "big") in (2 * CHAIN + 35, 2 * CHAIN + 36)
    amounts = [int.from_bytes(one, "big") for one in (value, gas, fee)]
    assert to.hex() == FRIEND[2:]
    assert call == b""
    assert amounts[0] + amounts[1] * amounts[2] <= 10**16


@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4))
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_every_signature_is_of_something_that_the_policy_allows(bench: Bench, changes: dict[str, Any]) -> None:
    result = bench.ask(f"f{bench._count}-{len(bench.key.orders)}", **changes)
    if result.signature is not None:
        judge_as_the_chain_would(result.signature)


@given(st.dictionaries(st.sampled_from([*FIELDS, "Value", "blobs"]), VALUES, max_size=6))
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_a_provider_reads_is_judged_too(bench: Bench, given_: dict[str, Any]) -> None:
    try:
        read = transaction(given_, ADDRESS, CHAIN)
    except BadParams:
        return
    full = {**plain(maxFeePerGas=..., maxPriorityFeePerGas=...), **read}
    if "gasPrice" not in full:
        full.setdefault("maxFeePerGas", str(GWEI))
    result = bench.ask(request=full)
    if result.signature is not None:
        judge_as_the_chain_would(result.signature)
