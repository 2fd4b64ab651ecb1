"""The checks and their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from eth_abi.abi import encode

from sandbox.policy.signing.checks import CHECKS
from sandbox.signing.calls import keccak
from tests.signing.keys import CHAIN, ETHER, FOE, FRIEND, GWEI, POLICY, TOKEN, Bench, sender

SELECTOR = keccak(b"transfer(address,uint256)")[:4]


def transfer(to: str = FRIEND, amount: int = 1) -> str:
    return "0x" + (SELECTOR + encode(["address", "uint256"], [to, amount])).hex()


def test_the_order_of_checks_is_the_specifications() -> None:
    assert [rule for rule, _ in CHECKS] == [
        "replay", "chain", "denied", "allowed", "value", "selector", "hourly", "daily", "spend"
    ]  # fmt: skip


def test_the_defaults_are_the_specifications() -> None:
    from sandbox.config.signing_section import Signing

    signing = Signing()
    assert (signing.max_value, signing.max_per_hour, signing.max_per_day) == (10**17, 10, 50)
    assert (signing.confirm_above, signing.approval_lifetime) == (10**16, 300)
    assert not signing.enabled
    assert not (signing.chains or signing.allowed_addresses or signing.messages.typed)


def test_within_the_policy_it_is_signed_at_once(tmp_path: Path) -> None:
    from tests.signing.keys import ADDRESS

    result = Bench(tmp_path).ask()
    assert sender(result.signature) == ADDRESS
    assert not result.confirmed


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("chain", {"chainId": 1}),
        ("chain", {"chainId": 1, "to": FOE, "value": str(ETHER)}),  # the first that refuses is told
        ("denied", {"to": FOE, "value": str(ETHER)}),
        ("denied", {"to": FOE.upper().replace("0X", "0x")}),
        ("allowed", {"to": "0x" + "33" * 20}),
        ("value", {"value": str(10**17 + 1)}),
        ("value", {"gasLimit": "1000001"}),
        ("value", {"maxFeePerGas": str(501 * GWEI)}),
        ("selector", {"data": "0x00"}),
        ("selector", {"data": "0x" + SELECTOR.hex()}),  # to an address for ether alone
        ("selector", {"to": TOKEN}),
        ("selector", {"to": TOKEN, "data": "0x" + SELECTOR[:3].hex()}),
        ("selector", {"to": TOKEN, "data": "0x" + SELECTOR.hex()}),
        ("selector", {"to": TOKEN, "data": "0xdeadbeef"}),
        ("selector", {"to": TOKEN, "data": transfer() + "00"}),
        ("selector", {"to": TOKEN, "data": transfer()[:-2]}),
        ("selector", {"to": TOKEN, "data": transfer(FOE)}),
        ("selector", {"to": TOKEN, "data": transfer(amount=1001)}),
        ("selector", {"to": TOKEN, "data": transfer().replace("0" * 24 + "11", "1" + "0" * 23 + "11", 1)}),
    ],
)
def test_what_the_policy_does_not_allow_is_refused_by_the_first_rule(
    tmp_path: Path, rule: str, changes: dict[str, Any]
) -> None:
    bench = Bench(tmp_path)
    result = bench.ask(**changes)
    assert (result.signature, result.decision.rule) == (None, rule)
    assert bench.key.orders == []


def test_a_call_with_allowed_arguments_is_signed(tmp_path: Path) -> None:
    assert Bench(tmp_path).ask(to=TOKEN, data=transfer(amount=1000), gasLimit="60000").signature


def test_an_empty_policy_signs_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"enabled": True})
    assert bench.ask().decision.rule == "chain"
    assert bench.ask(kind="text", request={"message": "0x6869"}).decision.rule == "allowed"


def test_limits_of_a_sandbox_and_of_a_destination_count_apart(tmp_path: Path) -> None:
    policy = {
        **POLICY,
        "per_sandbox": {"max_per_hour": 2},
        "contracts": {FRIEND: {"max_per_day": 3, "functions": {"*": {}}}},
    }
    bench = Bench(tmp_path, policy)
    assert [bool(bench.ask(asker="sandbox:a").signature) for _ in range(3)] == [True, True, False]
    assert [bool(bench.ask(asker="sandbox:b").signature) for _ in range(2)] == [True, False]


def test_what_a_day_costs_is_counted_with_fees(tmp_path: Path) -> None:
    policy = {**POLICY, "max_spend_per_day": 3 * (1000 + 21000 * GWEI)}
    bench = Bench(tmp_path, policy)
    assert [bool(bench.ask().signature) for _ in range(4)] == [True, True, True, False]
    assert bench.ask().decision.rule == "spend"


def test_fees_count_towards_what_a_person_must_approve(tmp_path: Path) -> None:
    assert Bench(tmp_path).ask(value="0", gasLimit="100000", maxFeePerGas=str(101 * GWEI)).pending


def test_a_legacy_transaction_is_bound_to_its_chain(tmp_path: Path) -> None:
    import rlp

    raw = Bench(tmp_path).ask(maxFeePerGas=..., maxPriorityFeePerGas=..., gasPrice=str(GWEI)).signature
    fields = rlp.decode(bytes.fromhex(raw[2:]))
    assert int.from_bytes(fields[6], "big") in (2 * CHAIN + 35, 2 * CHAIN + 36)


@pytest.mark.parametrize(
    ("kind", "rule", "value", "fine"),
    [
        ("string", {"allowed": ["Alice"]}, "Alice", True),
        ("string", {"allowed": ["Alice"]}, "alice", False),
        ("string", {"allowed": ["kelvin"]}, "\u212aelvin", False),  # the kelvin sign is k in lower case
        ("bytes2", {"allowed": ["0xABCD"]}, b"\xab\xcd", True),
        ("address", {"allowed": ["0x" + "AB" * 20]}, "0x" + "ab" * 20, True),
        ("bool", {"allowed": ["true"]}, True, True),
        ("int256", {"max": 10}, 10, True),
        ("int256", {"max": 10}, 0, True),
        ("int256", {"max": 10}, -1, False),
        ("int256", {"max": 10, "min": -5}, -5, True),
        ("int256", {"max": 10, "min": "-5"}, -6, False),
        ("int256", {"min": 3}, 3, True),
        ("int256", {"min": 3}, 2, False),
        ("int256", {"min": 3}, 2**254, True),
        ("uint256", {"min": "1 gwei"}, 10**9 - 1, False),
        ("string", {"min": 0}, "5", False),
    ],
)
def test_an_argument_is_what_its_rule_says_and_nothing_like_it(
    tmp_path: Path, kind: str, rule: dict[str, Any], value: object, fine: bool
) -> None:
    bench = Bench(
        tmp_path, {**POLICY, "contracts": {TOKEN: {"functions": {f"act({kind} it)": {"arguments": {"it": rule}}}}}}
    )
    data = keccak(f"act({kind})".encode())[:4] + encode([kind], [value])
    assert bool(bench.ask(to=TOKEN, data=f"0x{data.hex()}", gasLimit="60000").signature) is fine


TWICE: list[dict[str, Any]] = [
    {"contracts": {"0x" + "ab" * 20: {}, "0x" + "AB" * 20: {"functions": {"*": {}}}}},
    {"contracts": {TOKEN: {"functions": {"f(uint a)": {"arguments": {"a": {"max": "1"}}}, "f(uint256)": {}}}}},
    {"contracts": {TOKEN: {"functions": {"f(uint a)": {"arguments": {"a": {"max": "1"}, "0": {"max": "9"}}}}}}},
    {"contracts": {TOKEN: {"functions": {"f(uint a)": {"arguments": {"0": {"max": "1"}, "00": {"max": "9"}}}}}}},
    {"contracts": {TOKEN: {"functions": {"f(uint a, uint a)": {"arguments": {"a": {"max": "1"}}}}}}},
]


@pytest.mark.parametrize("given", TWICE)
def test_a_rule_that_is_given_twice_or_for_two_arguments_is_an_error(given: dict[str, Any]) -> None:
    from sandbox.config.signing_section import Signing
    from sandbox.errors import ConfigError
    from sandbox.signing.calls import rules_of

    with pytest.raises(ConfigError, match=r"twice|two arguments") as problem:
        rules_of(Signing.read({**POLICY, **given}))
    assert "signing.contracts" in str(problem.value)
