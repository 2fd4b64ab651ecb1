"""The gate's DNS, byte for byte: answers for allowed names, refusals for the rest, sense for anything hostile."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.network.gate.dns import MAX_MESSAGE, answer

V4, V6 = bytes((198, 18, 1, 0)), bytes.fromhex("20010002000000000000000000010000")
NOERROR, FORMERR, NOTIMP, REFUSED = 0, 1, 4, 5


def lookup(name: str, kind: str) -> tuple[bytes, bytes] | None:
    return (V4, V6) if name == "good.test" else None


def query(name: bytes = b"\4good\4test\0", kind: int = 1, *, flags: int = 0x0100, group: int = 1, extra: bytes = b"",
          counts: tuple[int, int, int, int] = (1, 0, 0, 0)) -> bytes:  # fmt: skip
    return struct.pack(">HHHHHH", 0x1234, flags, *counts) + name + struct.pack(">HH", kind, group) + extra


def code(response: bytes | None) -> int:
    assert response is not None and response[:2] == b"\x12\x34" and response[2] & 0x80
    return response[3] & 15


@pytest.mark.parametrize(("kind", "data"), [(1, V4), (28, V6)])
def test_an_allowed_name_gets_its_synthetic_address(kind: int, data: bytes) -> None:
    response = answer(query(kind=kind), lookup)
    assert code(response) == NOERROR
    assert response is not None and response.endswith(struct.pack(">HHIH", kind, 1, 60, len(data)) + data)
    assert struct.unpack(">HHHH", response[4:12]) == (1, 1, 0, 0)


@pytest.mark.parametrize("kind", [65, 64, 15, 16, 33, 999])
def test_other_types_of_an_allowed_name_are_empty(kind: int) -> None:
    response = answer(query(kind=kind), lookup)
    assert code(response) == NOERROR
    assert response is not None and struct.unpack(">H", response[6:8]) == (0,)


@pytest.mark.parametrize(
    "name", [b"\4evil\4test\0", b"\0", b"\6secret\4evil\4test\0", b"\x07good\0te\0", b"\1*\0", b"\3a b\4test\0"]
)
def test_everything_else_is_refused(name: bytes) -> None:
    assert code(answer(query(name), lookup)) in (REFUSED, FORMERR)


def test_the_question_comes_back_in_the_case_it_was_asked() -> None:
    response = answer(query(b"\4GoOd\4TeSt\0"), lookup)
    assert code(response) == NOERROR
    assert response is not None and b"\4GoOd\4TeSt\0" in response


def test_edns_is_answered_with_edns() -> None:
    opt = struct.pack(">BHHIH", 0, 41, 4096, 0, 4) + b"abcd"
    response = answer(query(extra=opt, counts=(1, 0, 0, 1)), lookup)
    assert code(response) == NOERROR
    assert response is not None and response.endswith(struct.pack(">BHHIH", 0, 41, MAX_MESSAGE, 0, 0))


@pytest.mark.parametrize(
    "message",
    [
        query(b"\xc0\x0c"),  # a pointer to itself
        query(b"\4good\xc0\x0c"),
        query(b"\x40" + b"a" * 64 + b"\0"),
        query((b"\x3f" + b"a" * 63) * 5 + b"\0"),
        query(counts=(2, 0, 0, 0)),
        query(counts=(0, 0, 0, 0)),
        query(counts=(1, 1, 0, 0)),
        query(counts=(1, 0, 0, 9)),
        query(extra=b"junk"),
        query(extra=b"junk", counts=(1, 0, 0, 1)),
        query()[:-1],
        query()[:14],
        query(extra=b"x" * 4000),
        query(b"\5go.od\4test\0"),
        query(b"\5go\xc3\xb6d\4test\0"),
    ],
)
def test_malformed_questions_are_answered_as_such(message: bytes) -> None:
    assert code(answer(message, lookup)) == FORMERR


def test_other_operations_are_not_implemented_and_responses_are_ignored() -> None:
    assert code(answer(query(flags=0x2800), lookup)) == NOTIMP
    assert answer(query(flags=0x8180), lookup) is None
    assert answer(b"\0" * 11, lookup) is None


def test_other_classes_are_refused() -> None:
    assert code(answer(query(group=3), lookup)) == REFUSED


@given(st.binary(max_size=600))
def test_no_bytes_break_it_and_no_answer_is_large(message: bytes) -> None:
    response = answer(message, lookup)
    assert response is None or (response[:2] == message[:2] and len(response) <= 600)


@given(st.binary(max_size=300), st.integers(0, 65535))
def test_no_question_breaks_it(body: bytes, kind: int) -> None:
    answer(query(body, kind), lookup)
    answer(query(extra=body, counts=(1, 0, 0, 1)), lookup)
