"""Answers that no ordinary server sends: they bring no value in, and they cost the gate little."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from sandbox.network import stream
from sandbox.network.http.http1_upstream import GATHERED, Http1Upstream
from sandbox.network.http.websocket import FrameRelay
from tests.network.lab import PLACEHOLDER, VALUE, Lab, secret

MakeLab = Callable[..., Lab]
API = "api.example.com"
FIRST, REST = VALUE[:9].encode(), VALUE[9:].encode()
OK = b"HTTP/1.1 200 OK\r\n"


def saying(*pieces: bytes) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]:
    """An origin that answers the first request with `pieces`, and then waits for the gate to leave."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        await reader.read()

    return answer


def answered(lab: Lab, *pieces: bytes) -> bytes:
    lab.origins[API].raw = saying(*pieces)  # type: ignore[assignment]
    return lab.say(b"GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize(
    "said",
    [
        OK + b"X: %s\0%s\r\n\r\n",
        OK + b"X: a\r%s\r%s\r\n\r\n",
        OK + b"%s %s: b\r\n\r\n",
        b"%s\n%s\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n%s\0%s\r\n",
    ],
)
def test_an_answer_that_cannot_be_read_is_reported_without_quoting_it(make_lab: MakeLab, said: bytes) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    answer = answered(lab, said % (FIRST, REST))
    assert answer.startswith(b"HTTP/1.1 502") and b"upstream's answer is malformed" in answer
    told = answer.decode() + json.dumps(lab.reports, default=str)
    assert FIRST.decode() not in told and REST.decode() not in told


@pytest.mark.parametrize(
    "said",
    [
        OK + b"Content-Length: 0\r\nX: %s\r\n %s\r\nY: good\r\n\r\n",
        OK + b"Content-Length: 0\r\nX: a %s\r\n\t%s b\r\nY: good\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: %s\r\n %s\r\nY: good\r\n\r\n",
    ],
)
def test_a_value_in_a_folded_line_takes_the_field_away(make_lab: MakeLab, said: bytes) -> None:
    answer = answered(make_lab({"secrets": {"KEY": secret()}}), said % (FIRST, REST))
    assert answer.startswith(b"HTTP/1.1 200") and (b"Y: good" in answer or b"chunked" in said)
    assert FIRST not in answer and REST not in answer


def test_interim_answers_without_end_are_given_up(make_lab: MakeLab) -> None:
    answer = answered(make_lab({"secrets": {"KEY": secret()}}), b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" * 10_000)
    assert answer.count(b"HTTP/1.1 103") < 100
    assert b"interim answers without end" in answer


def test_what_comes_behind_an_answer_is_not_taken_for_the_next_one(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.origins[API].raw = saying((OK + b"Content-Length: 1\r\n\r\na") + (OK + b"Content-Length: 1\r\n\r\nb"))  # type: ignore[assignment]
    request = b"GET /%d HTTP/1.1\r\nHost: api.example.com\r\n%s\r\n"
    answer = lab.say(request % (1, b"") + request % (2, b"Connection: close\r\n"))
    assert answer.endswith(b"\r\n\r\na")
    assert lab.origins[API].connections == 2


@pytest.mark.parametrize("kind", ["application/connect+json", "application/grpc", "application/grpc+proto"])
def test_an_echo_that_calls_itself_grpc_does_not_cut_a_value_in_two(make_lab: MakeLab, kind: str) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    head = f"Content-Type: {kind}\r\n".encode()
    request = b"POST / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\nContent-Length: 0\r\n" + head + b"\r\n"
    for size in (3, len(VALUE) // 2, len(VALUE) - 1):
        content = b"\0" + size.to_bytes(4, "big") + VALUE.encode() + b"\0\0\0\0\0"
        lab.origins[API].raw = saying(OK + head + b"\r\n", content)  # type: ignore[assignment]
        with lab.tls_socket() as sock:
            sock.sendall(request)
            answer = b""
            while b"\0" + size.to_bytes(4, "big") not in answer and (data := sock.recv(65536)):
                answer += data
        assert VALUE[:size].encode() not in answer.split(b"\r\n\r\n", 1)[1]


class Given:
    """A connection on which `data` has arrived, in pieces."""

    ended = False

    def __init__(self, *data: bytes) -> None:
        self._data = list(data)
        self.written: list[bytes] = []

    async def read(self) -> bytes:
        if self._data:
            return self._data.pop(0)
        await asyncio.sleep(3600)
        return b""

    async def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        pass

    abort = close


class Passing:
    """What a sandbox without secrets looks for: nothing."""

    def outgoing(self) -> Callable[[bytes, bool], bytes]:
        return lambda data, last: data

    incoming = outgoing

    def refuse_in(self, payload: bytes) -> None:
        pass

    def scrubbed(self, payload: bytes) -> bytes:
        return payload


async def turns_of_others(work: asyncio.Task[object]) -> int:
    turns = 0
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


def test_a_message_of_tiny_frames_leaves_turns_to_other_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "TURN", -1)
    frames = b"\x01\x01a" + b"\x00\x01a" * 20_000 + b"\x80\x00" + b"\x88\x02\x03\xe8"

    async def relay() -> tuple[int, bytes]:
        tenant, upstream = Given(), Given(frames)
        work = asyncio.ensure_future(FrameRelay(tenant, upstream, Passing()).run(b"", b""))
        return await turns_of_others(work), b"".join(tenant.written)

    turns, written = asyncio.run(relay())
    assert turns > 50
    assert written.count(b"a") == 20_001


def test_an_answer_of_tiny_chunks_comes_in_larger_pieces_and_leaves_turns_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "TURN", -1)
    from sandbox.network.http.headers import Headers
    from sandbox.network.http.message import Request

    chunks = OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 10_000

    async def read() -> list[int]:
        upstream = Http1Upstream(Given(chunks + b"1\r\na", b"\r\n0\r\n\r\n"))
        answer = await upstream.send(Request("GET", "https", API, 443, "/", Headers()))
        sizes = []
        while piece := await answer.stream.read():
            sizes.append(len(piece))
        return sizes

    sizes = asyncio.run(read())
    assert sum(sizes) == 10_001
    assert len(sizes) < 100 and GATHERED in sizes


def test_a_placeholder_is_still_what_comes_of_an_ordinary_echo(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    assert PLACEHOLDER.encode() in answered(lab, OK + b"Content-Length: %d\r\n\r\n" % len(VALUE) + VALUE.encode())
