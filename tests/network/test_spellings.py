"""A value is found however it is written, and what is held back says nothing about it."""

from __future__ import annotations

import base64
import itertools
import re
from html.entities import html5
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandbox.network.http.headers import Headers
from sandbox.network.http.message import Request
from sandbox.network.secrets.scrubbing import Scrubber, messages_of
from sandbox.network.secrets.spellings import Values, _base64, _one_of, _unit, _Value

VALUE, HIDDEN = b'sk-Live_4f8e+/"9&7', b"PLACEHOLDER-0123456789"

escapes = st.sampled_from(
    [
        lambda byte: bytes((byte,)),
        lambda byte: b"%%%02x" % byte,
        lambda byte: b"%%%02X" % byte,
        lambda byte: b"%%25%02X" % byte,
        lambda byte: b"\\u%04x" % byte,
        lambda byte: b"\\u%04X" % byte,
        lambda byte: b"\\\\u%04X" % byte,
        lambda byte: b"\\x%02x" % byte,
        lambda byte: b"%%5Cu%04x" % byte,
        lambda byte: b"&#%d;" % byte,
        lambda byte: b"&#x%x;" % byte,
        lambda byte: b"&#%08d;" % byte,
        lambda byte: b"&#X%08X;" % byte,
        lambda byte: b"\\%03o" % byte,
        lambda byte: b"\\u{%x}" % byte,
        lambda byte: b"\\U%08x" % byte,
        lambda byte: b"%%u%04X" % byte,
        lambda byte: bytes((byte,)).swapcase(),
        lambda byte: (b"" if bytes((byte,)).isalnum() else b"\\") + bytes((byte,)),
    ]
)
# What may stand around it: also the beginning of an escape, which must not swallow the value's own beginning.
around = st.one_of(
    st.binary(max_size=9),
    st.sampled_from([b"%", b"\\u00", b"\\", b"&#", b"%2", b"user:", b"&#x0", b"\\U", b"\\0", b"&"]),
)


def known(*values: bytes) -> Values:
    found = Values()
    for value in values or (VALUE,):
        found.add("KEY", value, HIDDEN)
    return found


@given(around, st.lists(escapes, min_size=len(VALUE), max_size=len(VALUE)), st.binary(max_size=9))
def test_any_mix_of_escaped_and_plain_characters_is_found(before: bytes, ways: list, after: bytes) -> None:  # type: ignore[type-arg]
    spelled = b"".join(way(byte) for way, byte in zip(ways, VALUE, strict=True))
    assert HIDDEN in known().scrubbed(before + spelled + after)


# Values whose first or last characters an escape around them can take.
@pytest.mark.parametrize(
    "value", [b"00000431abcd", b"plus;abcdefgh", b"41414141414141", b"abcdefgh&#4", b"u0041abcdefgh"]
)
@given(around, st.sampled_from([b"", b"3;", b"%41", b"41"]), st.data())
def test_no_beginning_of_an_escape_around_a_value_hides_it(
    value: bytes, before: bytes, after: bytes, data: st.DataObject
) -> None:
    ways = data.draw(st.lists(escapes, min_size=len(value), max_size=len(value)))
    mixed = value[:-3] + b"".join(way(byte) for way, byte in zip(ways, value[-3:], strict=False))
    for spelled in (value, mixed):
        assert HIDDEN in known(value).scrubbed(before + spelled + after)


@pytest.mark.parametrize("byte", range(0x21, 0x7F))
def test_a_character_by_any_of_its_names_in_html_is_found(byte: int) -> None:
    value = b"sk-live-%c-0123456789" % byte
    named = [name for name, text in html5.items() if name.endswith(";") and text == chr(byte)]
    for written in [*(f"&{name}" for name in named), f"&#{byte};", f"&#{byte}", f"&#x{byte:x}", f"&amp;#{byte};"]:
        text = value.replace(b"%c" % byte, written.encode()) if byte not in b"sklive-0123456789" else value
        assert known(value).scrubbed(b"<" + text + b">") == b"<" + HIDDEN + b">"


@given(st.binary(max_size=7), st.binary(max_size=7), st.booleans(), st.booleans())
@example(b"user:", b"", True, True)
def test_base64_is_found_at_every_alignment_in_either_alphabet(
    before: bytes, after: bytes, url: bool, padded: bool
) -> None:
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    spelled = encode(before + VALUE + after)
    if not padded:
        spelled = spelled.rstrip(b"=")
    for text in (spelled, spelled.replace(b"/", b"\\/"), spelled.replace(b"+", b"%2b").replace(b"/", b"%2F")):
        left = known().scrubbed(text)
        assert HIDDEN in left
        assert base64.b64encode(VALUE)[4:16] not in left


@pytest.mark.parametrize("spelled", [VALUE.hex(), VALUE.hex().upper()])
def test_hexadecimal_is_found(spelled: str) -> None:
    assert known().scrubbed(b"<" + spelled.encode() + b">") == b"<" + HIDDEN + b">"


@given(st.binary(max_size=200))
def test_nothing_is_found_where_nothing_is(data: bytes) -> None:
    assert known().scrubbed(data) == data


def test_a_value_that_begins_another_hides_none_of_it() -> None:
    values = known(b"sk-live-0123", b"sk-live-0123-and-more", b"more-of-another")
    assert values.scrubbed(b"<sk-live-0123-and-more>") == b"<" + HIDDEN + b">"
    assert values.scrubbed(b"<sk-live-0123-and-more-of-another>") == b"<" + HIDDEN + b">"


def one_pattern(value: bytes) -> re.Pattern[bytes]:
    """The whole equivalence as one regular expression; only for what is short, as compiling it takes long."""
    ways = [b"".join(map(_unit, value)), b"(?i:%s)" % value.hex().encode()]
    ways += [b"".join(map(_one_of, _base64(value, before))) for before in range(3)]
    return re.compile(b"|".join(ways))


# Characters that escapes are made of: one spelling begins another, and where one ends is open.
awkward = st.lists(st.sampled_from([b"%", b"\\", b"&", b"2", b"5", b"c", b"a", b";", b"/", b" ", b"\xff"]), min_size=1)
fragments = [
    b"%",
    b"%25",
    b"25",
    b"\\",
    b"5c",
    b"%5C",
    b"u005c",
    b"x5c",
    b"&",
    b"amp;",
    b"%26",
    b"26",
    b"u0026",
    b"#38;",
]


@given(awkward.map(lambda some: b"".join(some[:6])), st.data())
def test_character_by_character_exactly_that_is_found_which_one_pattern_finds(
    value: bytes, data: st.DataObject
) -> None:
    mix = st.lists(escapes, min_size=len(value), max_size=len(value)).map(
        lambda ways: b"".join(way(byte) for way, byte in zip(ways, value, strict=True))
    )
    encoded = st.binary(max_size=3).map(lambda before: base64.b64encode(before + value + before))
    others = st.sampled_from([value, value[:-1], value.hex().encode(), value.hex().upper().encode(), *fragments])
    text = b"".join(data.draw(st.lists(st.one_of(mix, mix, encoded, others), max_size=12)))
    expected = [match.span() for match in one_pattern(value).finditer(text)]
    assert list(_Value("KEY", value, HIDDEN).places(text)) == expected


def test_a_value_of_many_kilobytes_is_found_in_a_mix_of_spellings() -> None:
    value = bytes(0x21 + at * at % 94 for at in range(16_384))
    ways = [b"%c", b"%%%02x", b"\\u%04X", b"&#%d;", b"%%25%02X", b"\\\\x%02x"]
    mixed = b"".join(ways[at * 7 % 13 % 6] % byte for at, byte in enumerate(value))
    text = b"|".join([value, mixed, value.hex().upper().encode(), base64.urlsafe_b64encode(b"user:" + value)])
    assert known(value).scrubbed(text).count(HIDDEN) == 4
    assert known(value).scrubbed(mixed[:-9] + b"~" + mixed[-9:]).count(HIDDEN) == 0


def test_hostile_text_is_searched_in_bounded_time() -> None:
    for piece in (b"\\" * 65536, b"%25" * 21845, b"&#0" * 21845, VALUE[:-1] * 3640, VALUE * 3640):
        known().scrubbed(piece)  # quadratic, it would take hours


# Streams


def pieces(data: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(one for one in at if one < len(data))})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


parts = st.lists(st.sampled_from([VALUE, VALUE[:-1], VALUE[:3], b"\n", b"x" * 30, b"\r\n", b"\xc3\xbc"]), max_size=12)
cuts = st.lists(st.integers(0, 300), max_size=12)


@given(parts, cuts, st.sampled_from([0, 20_000]))
def test_a_stream_is_cleaned_however_it_is_cut(some: list[bytes], at: list[int], filler: int) -> None:
    data = b"y" * filler + b"".join(some)
    scrubber = Scrubber(known())
    at = [filler + one for one in at]
    out = b"".join(scrubber.feed(piece) for piece in pieces(data, at)) + scrubber.flush()
    assert out == data.replace(VALUE, HIDDEN)


@given(st.lists(st.tuples(st.integers(0, len(VALUE) - 1), st.sampled_from([b"", b"\n", b"z" * 700])), max_size=20))
def test_when_pieces_come_and_how_long_they_are_says_nothing_about_a_value(guesses: list[tuple[int, bytes]]) -> None:
    right, wrong = Scrubber(known()), Scrubber(known())
    for size, after in guesses:
        # A part of the value, and what is nothing like it.
        assert len(right.feed(VALUE[:size] + after)) == len(wrong.feed(b"~" * size + after))
    assert len(right.flush()) == len(wrong.flush())


def test_half_a_value_is_never_released() -> None:
    scrubber = Scrubber(known())
    assert b"".join(scrubber.feed(VALUE[at : at + 1]) for at in range(len(VALUE))) == b""
    assert scrubber.feed(b"\n") == HIDDEN + b"\n"


def asked(kind: bytes = b"application/grpc", method: str = "POST") -> Request:
    return Request(method, "https", "api.example.com", 443, "/", Headers([(b"Content-Type", kind)]))


def amazon_message(content: bytes) -> bytes:
    head = (len(content) + 16).to_bytes(4, "big") + bytes(4)
    head += crc32(head).to_bytes(4, "big")
    return head + content + crc32(head + content).to_bytes(4, "big")


GRPC, AMAZON = (
    Headers([(b"Content-Type", kind)]) for kind in (b"application/grpc+proto", b"application/vnd.amazon.eventstream")
)


def test_a_line_a_grpc_message_and_an_event_come_when_they_are_complete() -> None:
    assert Scrubber(known()).feed(b"data: 1\n\nda") == b"data: 1\n\n"
    scrubber = Scrubber(known(), messages_of(GRPC, asked()), same_length=True)
    first, second = b"\0\0\0\0\x04abcd", b"\0" + len(VALUE).to_bytes(4, "big") + VALUE
    assert scrubber.feed(first + second[:9]) == first
    assert scrubber.feed(second[9:] + first) == second[:5] + HIDDEN[: len(VALUE)] + first


@pytest.mark.parametrize("cuts", [1, 13, 4000, 100_000])
def test_events_of_any_size_come_when_they_are_complete_however_they_are_cut(cuts: int) -> None:
    scrubber = Scrubber(known(), messages_of(AMAZON, asked()), same_length=True)
    for content in (b"{}", b"x" * 30_000, b"", b"last"):
        event = amazon_message(content)
        pieces = [scrubber.feed(event[at : at + cuts]) for at in range(0, len(event), cuts)]
        assert b"".join(pieces) == event


@pytest.mark.parametrize("kind", [GRPC, AMAZON])
@pytest.mark.parametrize("size", range(1, len(VALUE)))
def test_an_answers_type_and_first_bytes_cannot_cut_a_value_in_two(kind: Headers, size: int) -> None:
    head = amazon_message(b"x" * size)[:12] if kind is AMAZON else b"\0" + size.to_bytes(4, "big")
    for request in (asked(b"text/plain"), asked(method="GET")):
        scrubber = Scrubber(known(), messages_of(kind, request), same_length=True)
        out = scrubber.feed(head + VALUE[:size]) + scrubber.feed(VALUE[size:]) + scrubber.flush()
        assert out == head + HIDDEN[: len(VALUE)]


@pytest.mark.parametrize("escaped", [b"/", b"w", b"@", b"%", b"d", b"&", b"4"])
@pytest.mark.parametrize("way", [b"%%%02X", b"\\u00%02x", b"&#%d;", b"%%25%02x"])
def test_a_value_that_holds_an_escape_itself_is_found_in_a_mix_of_spellings(escaped: bytes, way: bytes) -> None:
    value = b"postgres://app:p%40ssw0rd@db/main?a=1&lt;b"
    values = Values()
    values.add("URL", value, b"PLACEHOLDER")
    text = b"before " + value.replace(escaped, way % escaped[0]) + b" behind"
    assert values.scrubbed(text) == b"before PLACEHOLDER behind"
