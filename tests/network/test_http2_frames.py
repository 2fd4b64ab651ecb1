"""HTTP/2 frames pass as they came; a GOAWAY is told apart, and an oversized frame is noticed at its head."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.network.http.http2_frames import PREFACE, FrameTooLarge, GoAway, IncomingFrames

LARGEST = 16384


def frame(kind: int, content: bytes, stream: int = 0) -> bytes:
    return len(content).to_bytes(3, "big") + bytes((kind, 0)) + stream.to_bytes(4, "big") + content


def goaway(last: int, code: int, debug: bytes = b"") -> bytes:
    return frame(7, last.to_bytes(4, "big") + code.to_bytes(4, "big") + debug)


def taken(frames: IncomingFrames, pieces: list[bytes]) -> tuple[bytes, list[GoAway]]:
    found = [one for piece in pieces for one in frames.feed(piece, LARGEST)]
    passed = b"".join(one for one in found if isinstance(one, bytes))
    return passed, [one for one in found if isinstance(one, GoAway)]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(ends)]


DATA = frame(0, b"x" * 300, 1) + goaway(5, 0, b"why") + frame(0, b"", 3) + goaway(2**31 + 7, 11) + frame(4, b"")


@given(st.lists(st.integers(0, 10_000), max_size=20))
def test_goaways_are_recognized_wherever_the_bytes_are_cut(places: list[int]) -> None:
    passed, goodbyes = taken(IncomingFrames(client=True), cut(DATA, places))
    assert passed == frame(0, b"x" * 300, 1) + frame(0, b"", 3) + frame(4, b"")
    assert goodbyes == [GoAway(5, 0), GoAway(7, 11)]


@given(st.lists(st.integers(0, 10_000), max_size=20))
def test_a_server_is_passed_every_byte(places: list[int]) -> None:
    data = b"P" * PREFACE + DATA
    assert taken(IncomingFrames(client=False), cut(data, places)) == (data, [])


def test_a_malformed_goaway_is_left_to_h2() -> None:
    for data in (frame(7, b"1234567"), frame(7, b"12345678", stream=1)):
        assert taken(IncomingFrames(client=True), [data]) == (data, [])


def test_an_oversized_frame_is_refused_at_its_head() -> None:
    head = frame(0, b"x" * (LARGEST + 1), 1)[:9]
    with pytest.raises(FrameTooLarge):
        list(IncomingFrames(client=True).feed(head, LARGEST))
    assert taken(IncomingFrames(client=True), [frame(0, b"x" * LARGEST, 1)])[0]
