"""Words are found and replaced wherever a stream is cut, in bounded memory."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import zlib
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import Denied
from sandbox.network.http.body import Body, Whole, whole
from sandbox.network.http.compression import Decompressor, decoded, decompressor
from sandbox.network.http.headers import Headers
from sandbox.network.secrets.guarded_body import Guarded
from sandbox.network.secrets.placeholder_search import Finder, Replacer, beginning, unescaped

WORD, VALUE = b"SANDBOX_PLACEHOLDER_0a1b2c3d", b"sk-live-the-value"
cuts = st.lists(st.integers(0, 400), max_size=12)


def pieces(data: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(one for one in at if one < len(data))})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


class Pieces(Body):
    """A body that comes in the given pieces."""

    length = None

    def __init__(self, given: list[bytes], *, length: int | None = None) -> None:
        self._given = list(given)
        self.length = length
        self.closed = False

    async def read(self) -> bytes:
        return self._given.pop(0) if self._given else b""


@given(
    st.lists(st.sampled_from([WORD, b"SANDBOX_", b"S", b"x", b"\xff\x00", b"ANDBOX", WORD[:-1]]), max_size=9),
    cuts,
)
def test_replacing_gives_the_same_however_the_stream_is_cut(parts: list[bytes], at: list[int]) -> None:
    data = b"".join(parts)
    replacer = Replacer({WORD: VALUE})
    out = b"".join(replacer.feed(piece) for piece in pieces(data, at)) + replacer.flush()
    assert out == data.replace(WORD, VALUE)


def test_a_stream_that_begins_no_word_is_not_delayed() -> None:
    replacer = Replacer({WORD: VALUE})
    assert replacer.feed(b"data: one\n\n") == b"data: one\n\n"


@given(st.binary(max_size=40), st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=4))
def test_the_kept_end_is_the_longest_that_begins_a_word(data: bytes, words: list[bytes]) -> None:
    fitting = [n for n in range(len(data) + 1) for word in words if n < len(word) and data[len(data) - n :] == word[:n]]
    assert beginning(data, words) == max(fitting)


def _percent(word: bytes) -> bytes:
    return "".join(f"%{byte:02X}" for byte in word).encode()


def _json(word: bytes) -> bytes:
    return "".join(f"\\u{byte:04x}" for byte in word).encode()


@pytest.mark.parametrize("spelling", [WORD, _percent(WORD), _json(WORD), WORD[:9] + _percent(WORD[9:12]) + WORD[12:]])
@given(st.binary(max_size=20), st.binary(max_size=20), cuts)
def test_a_word_is_found_plainly_or_escaped_however_it_is_cut(
    spelling: bytes, before: bytes, after: bytes, at: list[int]
) -> None:
    finder = Finder([WORD])
    # What stands before must not itself be half an escape that swallows the first letter.
    before = before.replace(b"\\", b"").replace(b"%", b"")
    assert WORD in [finder.feed(piece) for piece in pieces(before + spelling + after, at)]


@given(st.binary(max_size=300), cuts)
def test_nothing_is_found_where_nothing_is(data: bytes, at: list[int]) -> None:
    finder = Finder([WORD])
    assert [one for piece in pieces(data, at) if (one := finder.feed(piece))] == []


def test_escapes_of_both_kinds_are_resolved() -> None:
    assert unescaped(quote("a/b c", safe="").encode()) == b"a/b c"
    assert unescaped(json.dumps('say "hi"').encode()) == b'"say "hi""'


@given(st.binary(max_size=2000), cuts, st.sampled_from(["gzip", "deflate", "raw"]))
def test_compressed_bodies_are_read_however_they_are_cut(data: bytes, at: list[int], way: str) -> None:
    packed = {"gzip": gzip.compress, "deflate": zlib.compress, "raw": lambda d: zlib.compress(d)[2:-4]}[way](data)
    inflate = Decompressor("gzip" if way == "gzip" else "deflate")
    assert b"".join(part for piece in pieces(packed, at) for part in inflate.feed(piece)) == data
    inflate.finish()


@given(st.binary(min_size=1, max_size=200))
def test_garbage_that_calls_itself_gzip_is_an_error_not_a_crash(data: bytes) -> None:
    inflate = Decompressor("gzip")
    try:
        list(inflate.feed(data))
        inflate.finish()
    except Denied:
        pass


def test_a_compression_bomb_is_refused() -> None:
    inflate = Decompressor("gzip")
    with pytest.raises(Denied, match="unreasonable size"):
        list(inflate.feed(gzip.compress(b"\0" * 64 * 2**20)))


def test_a_few_compressed_bytes_never_become_megabytes_at_a_time() -> None:
    packed = gzip.compress(b"\0" * 10 * 2**20)
    assert len(packed) < 20_000
    for body in (Pieces([packed]), Whole(packed)):
        plain = decoded(Headers([(b"Content-Encoding", b"gzip")]), body)
        sizes = []
        while piece := asyncio.run(plain.read()):
            sizes.append(len(piece))
        assert sum(sizes) == 10 * 2**20 and max(sizes) <= 2**20


def test_a_coding_nobody_can_look_into_is_refused() -> None:
    with pytest.raises(Denied, match="'br'"):
        decompressor(Headers([(b"Content-Encoding", b"br")]))


def test_decoding_takes_the_coding_out_of_the_headers() -> None:
    headers = Headers([(b"Content-Encoding", b"gzip"), (b"Content-Length", b"9"), (b"X", b"y")])
    body = asyncio.run(whole(decoded(headers, Pieces([gzip.compress(b"plain")]))))
    assert body.data == b"plain"
    assert headers.pairs == [(b"X", b"y")]


def guarded(given: list[bytes], *, length: int | None = None, inflate: Decompressor | None = None) -> Guarded:
    return Guarded(Pieces(given, length=length), [WORD], inflate, lambda word: Denied("rule", "found"))


@given(cuts)
def test_a_guarded_body_is_refused_before_any_of_it_is_given(at: list[int]) -> None:
    with pytest.raises(Denied):
        asyncio.run(guarded(pieces(b"a" * 150 + WORD + b"b" * 150, at)).inspect())


def test_a_guarded_body_in_gzip_is_refused() -> None:
    packed = gzip.compress(b"a" * 150 + WORD)
    with pytest.raises(Denied):
        asyncio.run(guarded([packed[:20], packed[20:]], inflate=Decompressor("gzip")).inspect())


@given(st.binary(max_size=300), cuts)
def test_a_harmless_body_passes_unchanged(data: bytes, at: list[int]) -> None:
    async def read_all() -> bytes:
        body = guarded(pieces(data, at))
        await body.inspect()
        return (await whole(body)).data

    assert asyncio.run(read_all()) == data


def test_beyond_what_is_read_ahead_the_word_itself_never_leaves() -> None:
    async def read_all() -> bytes:
        filler = [b"x" * 65536] * 20
        body = guarded([*filler, WORD[:12], WORD[12:], b"rest"])
        await body.inspect()
        given = b""
        with pytest.raises(Denied):
            while piece := await body.read():
                given += piece
        return given

    given = asyncio.run(read_all())
    assert set(given) == {ord("x")}
