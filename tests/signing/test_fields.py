"""Amounts and addresses have one spelling; anything else is refused before it is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.policy.signing.fields import MalformedField, decimal
from tests.signing.keys import FRIEND, Bench

ODD_AMOUNTS = ["-1", "+1", "0x10", "1e18", "1.0", "1.", ".5", "", " 1", "1 ", "01", "1_000", "١", "１", "1\n", "NaN",
               "Infinity", "9" * 40, str(2**128), "null", "0b1", "0o7", "1,000", "1\u200b"]  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(Path(tmp_path_factory.mktemp("fields")))


@pytest.mark.parametrize("value", [*ODD_AMOUNTS, 1, 1.0, -1, True, None, [], {}, ["1"]])
@pytest.mark.parametrize("field", ["value", "gasLimit", "maxFeePerGas", "maxPriorityFeePerGas"])
def test_an_amount_in_any_other_spelling_is_refused(bench: Bench, field: str, value: Any) -> None:
    result = bench.ask(**{field: value})
    assert (result.signature, result.decision.rule) == (None, "form")
    assert bench.key.orders == []


@given(st.text(max_size=50))
def test_what_is_read_as_an_amount_is_spelt_as_python_spells_it(text: str) -> None:
    try:
        found = decimal("value", text)
    except MalformedField:
        return
    assert str(found) == text


@pytest.mark.parametrize("chain", [0, -1, 1.0, "1337", "0x539", True, None, 2**53, 2**256, ..., [1337]])
def test_a_chain_id_is_a_positive_whole_number(bench: Bench, chain: Any) -> None:
    assert bench.ask(chainId=chain).decision.rule == "form"


@pytest.mark.parametrize("nonce", [-1, "0", "0x0", 2**64, 2**64 - 1, 0.0, True, None, ...])
def test_a_nonce_is_a_whole_number_that_the_chain_can_have(bench: Bench, nonce: Any) -> None:
    assert bench.ask(nonce=nonce).decision.rule == "form"


@pytest.mark.parametrize(
    "to", [None, "", "0x", ..., "0x" + "11" * 19, "0x" + "11" * 21, "11" * 20, "0X" + "11" * 20, "0x" + "1g" * 20,
           "friend.eth", "0x" + "１" * 40, FRIEND + "\n", "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"]
)  # fmt: skip
def test_an_address_is_whole_and_its_checksum_right(bench: Bench, to: Any) -> None:
    """No address means: create a contract."""
    assert bench.ask(to=to).decision.rule == "form"


@pytest.mark.parametrize(
    "data", [None, "", "0x1", "0x123", "1234", "0xzz", "0X12", "0x 12", "0x" + "00" * 24577, 5, ...]
)
def test_data_is_whole_bytes(bench: Bench, data: Any) -> None:
    assert bench.ask(data=data).decision.rule == "form"


@pytest.mark.parametrize(
    ("name", "value"),
    [("type", 3), ("accessList", []), ("blobVersionedHashes", []), ("authorizationList", []), ("from", FRIEND),
     ("maxFeePerBlobGas", "1"), ("gas", "21000"), ("input", "0x"), ("gasPrice", "1"),
     ("Value", "5"), ("valu\u0435", "5")],
)  # fmt: skip
def test_a_field_that_the_signature_might_or_might_not_cover_is_refused(bench: Bench, name: str, value: Any) -> None:
    assert bench.ask(**{name: value}).decision.rule == "form"


def test_a_tip_is_never_more_than_the_fee(bench: Bench) -> None:
    assert bench.ask(maxFeePerGas="5", maxPriorityFeePerGas="6").decision.rule == "form"


@pytest.mark.parametrize("id", ["", " ", "a b", "a\n", "é", "x" * 129, None, 1, True, ["a"], "a\u202eb"])
def test_an_id_is_short_plain_text(bench: Bench, id: Any) -> None:
    from tests.signing.keys import transaction

    result = bench.service.submit(id, "transaction", transaction(), asker="sandbox:a", sandbox="a")
    assert result.decision.rule == "form"
