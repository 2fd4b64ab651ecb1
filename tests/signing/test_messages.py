"""Messages: what is shown to a person and judged is what is in the hash."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.signing.keys import ADDRESS, CHAIN, FRIEND, POLICY, TOKEN, Bench

ORDER: dict[str, Any] = {
    "types": {
        "EIP712Domain": [
            {"name": "name", "type": "string"},
            {"name": "chainId", "type": "uint256"},
            {"name": "verifyingContract", "type": "address"},
        ],
        "Order": [{"name": "who", "type": "Person"}, {"name": "amounts", "type": "uint256[]"}],
        "Person": [{"name": "wallet", "type": "address"}],
    },
    "primaryType": "Order",
    "domain": {"name": "Shop", "chainId": CHAIN, "verifyingContract": TOKEN},
    "message": {"who": {"wallet": FRIEND}, "amounts": ["1", 2, "0x3"]},
}
TYPED = {**POLICY, "messages": {"typed": [{"contract": TOKEN, "name": "Shop", "types": ["Order"], "confirm": False}]}}


def changed(path: str, value: Any) -> dict[str, Any]:
    """ORDER with one thing changed; `...` removes it."""
    found = copy.deepcopy(ORDER)
    *way, last = path.split("/")
    place: Any = found
    for step in way:
        place = place[int(step) if isinstance(place, list) else step]
    key: Any = int(last) if isinstance(place, list) else last
    if value is ...:
        del place[key]
    else:
        place[key] = value
    return found


def test_typed_data_of_an_allowed_domain_is_signed_as_eth_account_does(tmp_path: Path) -> None:
    from eth_account import Account
    from eth_account.messages import encode_typed_data

    given = copy.deepcopy(ORDER)
    given["message"]["amounts"] = [1, 2, 3]
    result = Bench(tmp_path, TYPED).ask(kind="typed", request=ORDER)
    recovered = Account.recover_message(encode_typed_data(full_message=given), signature=result.signature)
    assert recovered.lower() == ADDRESS


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("domain/chainId", 0),
        ("domain/chainId", f"0x0{CHAIN:x}"),
        ("domain/chainId", float(CHAIN)),
        ("domain/chainId", None),
        ("domain/chainId", ...),
        ("domain/verifyingContract", ...),
        ("domain/salt", "0x" + "00" * 32),
        ("types/EIP712Domain", ...),
        ("types/EIP712Domain/1", ...),  # the chain is shown, but not hashed
        ("types/EIP712Domain/2", ...),
        ("types/EIP712Domain/1/type", "uint8"),
        ("types/EIP712Domain/2/type", "string"),
        ("types/EIP712Domain/0/name", "chainId"),
        ("types/Order/0/name", "amounts"),
        ("types/Order/0/type", "Nobody"),
        ("types/Order/0/type", "EIP712Domain"),
        ("types/Order/0/type", "Person[][][][][][][][][][]"),
        ("types/Person/0/type", "uint257"),
        ("types/Person/0/type", "uint"),
        ("types/Unused", []),
        ("types/address", [{"name": "x", "type": "uint256"}]),
        ("types/Ord\u0435r", []),
        ("primaryType", "EIP712Domain"),
        ("primaryType", "Person[]"),
        ("message/extra", "shown, but not signed"),
        ("message/who", ...),
        ("message/who/wallet", FRIEND[:-1]),
        ("message/amounts", {"0": 1}),
        ("message/amounts/0", -1),
        ("message/amounts/0", 2**256),
        ("message/amounts/0", "1e3"),
        ("message/amounts/0", True),
        ("message/amounts/0", 1.0),
        ("message/amounts", [1] * 3000),
        ("extra", 1),
    ],
)
def test_typed_data_that_could_mean_two_things_is_refused(tmp_path: Path, path: str, value: Any) -> None:
    bench = Bench(tmp_path, TYPED)
    assert bench.ask(kind="typed", request=changed(path, value)).decision.rule == "form"
    assert bench.key.orders == []


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        ("domain/chainId", 1, "chain"),
        ("domain/verifyingContract", FRIEND, "allowed"),
        ("domain/verifyingContract", POLICY["denied_addresses"][0], "denied"),
        ("domain/name", "Sh\u043ep", "allowed"),
    ],
)
def test_typed_data_of_another_domain_is_refused(tmp_path: Path, path: str, value: Any, rule: str) -> None:
    assert Bench(tmp_path, TYPED).ask(kind="typed", request=changed(path, value)).decision.rule == rule


def test_a_type_that_refers_to_itself_ends(tmp_path: Path) -> None:
    given = changed("types/Person", [{"name": "next", "type": "Person[]"}])
    deep: dict[str, Any] = {"next": []}
    for _ in range(30):
        deep = {"next": [deep]}
    given["message"]["who"] = deep
    assert Bench(tmp_path, TYPED).ask(kind="typed", request=given).decision.rule == "form"


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_entries_for_typed_data_the_stricter_decides(tmp_path: Path, order: int) -> None:
    entries = [
        {"contract": TOKEN, "types": ["Order"], "confirm": False},
        {"contract": TOKEN, "name": "Shop", "types": ["Order"], "confirm": True},
    ][::order]
    assert Bench(tmp_path, {**POLICY, "messages": {"typed": entries}}).ask("one", kind="typed", request=ORDER).pending


def test_typed_data_waits_for_a_person_unless_its_entry_says_otherwise(tmp_path: Path) -> None:
    policy = {**POLICY, "messages": {"typed": [{"contract": TOKEN, "types": ["Order"]}]}}
    bench = Bench(tmp_path, policy)
    assert bench.ask("one", kind="typed", request=ORDER).pending
    assert bench.service.pending()[0]["shown"]["message"]["amounts"] == ["1", "2", "3"]


TEXT = {**POLICY, "messages": {"text": "allow"}}


@pytest.mark.parametrize(
    "text",
    ["Sign in, please", "\u96fb\u6c60 \u20ac5\n\tOK \U0001f600", "e\u0301", "\u0939\u093f\u0928\u094d\u0926\u0940"],
)
def test_text_that_a_person_can_read_is_signed(tmp_path: Path, text: str) -> None:
    assert Bench(tmp_path, TEXT).ask(kind="text", request={"message": f"0x{text.encode().hex()}"}).signature


@pytest.mark.parametrize(
    "message",
    [
        bytes(32),  # what might be a hash: of a transaction, of typed data
        b"0123456789abcdef0123456789abcdef",
        b"\xff\xfe",
        b"\x19\x01" + bytes(64),  # how typed data begins
        b"\x02\xf8\x62",  # how a transaction begins
        "pay \u202e001 ot".encode(),
        b"a\x1b[2Jb",
        b"",
        b" \n",
        b"0x" + b"Ab" * 32,
        b"cd" * 32 + b"\n",
        "\u3164".encode(),  # a letter that looks like nothing
        "pay\ufe0f 1".encode(),
        "pay\U000e0101 1".encode(),
        "pay\u200b 1".encode(),
        "pay\u034f 1".encode(),
        "pay \u2800 1".encode(),
        "pay \u0301 1".encode(),  # a mark on nothing
        "pay\u00a01".encode(),
        "pay \ue000".encode(),
    ],
)
def test_bytes_that_are_no_plain_text_wait_for_a_person(tmp_path: Path, message: bytes) -> None:
    assert Bench(tmp_path, TEXT).ask(kind="text", request={"message": "0x" + message.hex()}).pending


def test_a_text_is_signed_with_the_standards_prefix_so_it_is_never_a_transaction(tmp_path: Path) -> None:
    from eth_account import Account
    from eth_account.messages import encode_defunct

    result = Bench(tmp_path, TEXT).ask(kind="text", request={"message": "0x6869"})
    assert Account.recover_message(encode_defunct(text="hi"), signature=result.signature).lower() == ADDRESS


def test_messages_count_towards_the_limits(tmp_path: Path) -> None:
    bench = Bench(tmp_path, TEXT)
    signed = [bool(bench.ask(kind="text", request={"message": f"0x{at:02x}6869"}).signature) for at in range(33, 44)]
    assert signed == [True] * 10 + [False]


@pytest.mark.parametrize(
    "name", ["uint", "int", "byte", "bytes33", "uint7", "string2", "fixed128x18", "function", "tuple"]
)
def test_a_type_named_like_a_basic_one_is_refused_even_when_it_is_used(tmp_path: Path, name: str) -> None:
    """Shown as a structure, some encoders would hash it as a number."""
    given = changed("types/Order/0/type", name)
    given["types"][name] = given["types"].pop("Person")
    assert Bench(tmp_path, TYPED).ask(kind="typed", request=given).decision.rule == "form"
