"""Garbage, half a hello, slow senders, floods and fuzz: bounded, recorded, and nobody else notices."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import Any

import h2.connection
import pytest

from sandbox.errors import Denied
from sandbox.network.http import http1_tenant
from sandbox.network.intercept import inspection
from tests.network.lab import Lab, secret
from tests.network.test_client_hello import HELLO

MakeLab = Callable[..., Lab]
API = "api.example.com"


def alive(lab: Lab) -> None:
    assert lab.ask()[0] == 200


def test_half_a_hello_and_then_nothing_is_given_up_and_others_continue(
    make_lab: MakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "HANDSHAKE_TIMEOUT", 0.5)
    lab = make_lab()
    with socket.create_connection(("127.0.0.1", lab.port)) as sock:
        sock.sendall(HELLO)  # and never another word
        assert sock.recv(1)
        monkeypatch.setattr(
            inspection, "HANDSHAKE_TIMEOUT", 60
        )  # its time is running; on a busy machine others take longer
        alive(lab)
        sock.settimeout(20)
        while sock.recv(65536):
            pass
    lab.wait_until_idle()


def test_a_slow_head_is_given_up(make_lab: MakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1_tenant, "HEAD_TIMEOUT", 0.5)
    lab = make_lab()
    with lab.tls_socket() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: api.exam")
        alive(lab)
        assert sock.recv(100) == b""


@pytest.mark.parametrize("reset", [True, False])
def test_a_tenant_that_leaves_when_it_has_seen_the_certificate_is_reported(make_lab: MakeLab, reset: bool) -> None:
    # It need not say why: its alert may be lost with the connection.
    lab = make_lab()
    with socket.create_connection(("127.0.0.1", lab.port)) as sock:
        sock.sendall(HELLO)
        assert sock.recv(1000)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", reset, 0))
    lab.wait_until_idle()
    (refusal,) = lab.raised
    assert isinstance(refusal, Denied) and "not trust the sandbox's certificate authority" in str(refusal)


def test_a_tenant_that_leaves_in_the_middle_of_everything_costs_nothing(make_lab: MakeLab) -> None:
    lab = make_lab()
    for cut in (b"GET / HT", b"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 100\r\n\r\nhalf"):
        sock = lab.tls_socket()
        sock.sendall(cut)
        sock.close()
    raw = socket.create_connection(("127.0.0.1", lab.port))
    raw.sendall(HELLO[:100])
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    raw.close()
    alive(lab)
    lab.wait_until_idle()


def test_a_tenant_that_leaves_during_an_answer_ends_it_upstream_too(make_lab: MakeLab) -> None:
    lab = make_lab()
    ended = threading.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0)  # drain does not yield once writing fails, and the end is never heard of
        except ConnectionError:
            ended.set()

    lab.origins[API].raw = endless
    sock = lab.tls_socket()
    sock.sendall(b"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
    sock.recv(1000)
    sock.close()
    assert ended.wait(20)
    lab.wait_until_idle()
    assert len(lab.reports) == 1


def test_a_tenant_that_leaves_while_it_waits_ends_the_waiting(
    make_lab: MakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "LEAVE", 0.1)
    lab = make_lab()
    asked, left = threading.Event(), threading.Event()

    async def think(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()  # nothing more comes until the gate hangs up
        left.set()

    lab.origins[API].raw = think
    sock = lab.tls_socket()
    sock.sendall(b"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
    assert asked.wait(20)
    sock.close()
    assert left.wait(20)
    lab.wait_until_idle()


def test_what_is_kept_of_bodies_is_bounded_over_all_requests(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.host = "other.example.com"
    allowance = lab.interception.allowance
    full = allowance._left
    allowance.change(full)  # as if others had taken it all
    answer = lab.say(
        b"POST / HTTP/1.1\r\nHost: other.example.com\r\nContent-Length: 500000\r\nConnection: close\r\n\r\n"
        + b"x" * 500000
    )
    assert b" 200 " in answer.split(b"\r\n")[0]
    allowance.change(-full)
    lab.wait_until_idle()
    assert allowance._left == full


REQUEST = b"POST /path HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"


def test_mangled_requests_never_break_the_gate_or_reach_the_origin_as_something_else(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.host = API
    dice = random.Random(1)
    for _ in range(150):
        data = bytearray(REQUEST)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(data))
            data[at : at + dice.randint(0, 2)] = dice.randbytes(dice.randint(0, 3)) if dice.random() < 0.5 else b"\r\n"
        with lab.tls_socket() as sock:
            sock.sendall(bytes(data))
            sock.settimeout(0.05)
            try:
                sock.recv(65536)
            except OSError:
                pass
    alive(lab)
    lab.wait_until_idle()
    assert [type(one).__name__ for one in lab.raised] == []
    for seen in lab.origins[API].seen:
        assert dict(seen["headers"])["host"] == API


def test_hundreds_of_connections_at_once_are_all_answered(make_lab: MakeLab) -> None:
    lab = make_lab()

    async def one(number: int) -> int:
        context = ssl.create_default_context(cafile=lab.ca_file)
        reader, writer = await asyncio.open_connection("127.0.0.1", lab.port, ssl=context, server_hostname=API)
        status = 0
        for _ in range(3):
            writer.write(b"GET /%d HTTP/1.1\r\nHost: api.example.com\r\n\r\n" % number)
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split()[1])
            length = next(int(line[16:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
            await reader.readexactly(length)
        writer.close()
        return status

    async def everybody() -> list[Any]:
        return await asyncio.gather(*(one(number) for number in range(200)))

    assert set(asyncio.run(everybody())) == {200}
    assert len(lab.origins[API].seen) == 600


def test_an_answer_with_too_large_a_head_is_refused(make_lab: MakeLab) -> None:
    lab = make_lab()

    async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2**20 + b"\r\n\r\n")
        await writer.drain()

    lab.origins[API].raw = large
    assert lab.ask()[0] == 502


def test_mangled_frames_never_break_the_gate(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}}, protocols=["h2"])
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    for number in (1, 3, 5):
        fields = [(":method", "POST"), (":scheme", "https"), (":authority", API), (":path", "/x"), ("a", "b" * 50)]
        connection.send_headers(number, fields)
        connection.send_data(number, b"hello" * 20, end_stream=number != 3)
    connection.reset_stream(3)
    good = connection.data_to_send()
    dice = random.Random(2)
    for _ in range(150):
        data = bytearray(good)
        for _ in range(dice.randint(1, 5)):
            at = dice.randrange(24 if dice.random() < 0.95 else 0, len(data))
            data[at : at + dice.randint(0, 3)] = dice.randbytes(dice.randint(0, 3))
        with lab.tls_socket(protocols=["h2"]) as sock:
            sock.sendall(bytes(data))
            sock.settimeout(0.05)
            try:
                while sock.recv(65536):
                    pass
            except OSError:
                pass
    lab.wait_until_idle()
    assert [repr(one) for one in lab.raised] == []
    from tests.network.test_http2 import Client

    client = Client(lab)
    assert client.answer(client.begin("/alive"))[0][":status"] == "200"
    client.close()
