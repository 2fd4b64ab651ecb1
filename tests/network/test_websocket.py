"""WebSockets through the gate: frames pass, anything else does not."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.connection import Connection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Pong, Request, TextMessage

from sandbox.network.http.websocket import _gathered
from tests.network.lab import PLACEHOLDER, VALUE, Lab, secret

MakeLab = Callable[..., Lab]
API = "api.example.com"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An origin that says back what it hears."""
    server = WSConnection(ConnectionType.SERVER)
    while data := await reader.read(65536):
        server.receive_data(data)
        for event in server.events():
            if isinstance(event, Request):
                writer.write(server.send(AcceptConnection(extra_headers=[(b"x-auth", _auth(event))])))
            elif isinstance(event, TextMessage):
                writer.write(server.send(TextMessage(event.data, message_finished=event.message_finished)))
            elif isinstance(event, BytesMessage):
                writer.write(server.send(BytesMessage(event.data, message_finished=event.message_finished)))
            elif isinstance(event, (Ping, CloseConnection)):
                writer.write(server.send(event.response()))
        await writer.drain()


def _auth(event: Request) -> bytes:
    return dict(event.extra_headers).get(b"authorization", b"none")


class Client:
    """A tenant's WebSocket."""

    def __init__(self, lab: Lab, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        self.sock = lab.tls_socket()
        handshake = WSConnection(ConnectionType.CLIENT)
        self.sock.sendall(handshake.send(Request(host=lab.host, target="/chat", extra_headers=headers or [])))
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.sock.recv(65536)
        self.head, _, rest = data.partition(b"\r\n\r\n")
        self.ws = Connection(ConnectionType.CLIENT)
        if rest:
            self.ws.receive_data(rest)

    def send(self, event: Any) -> None:
        self.sock.sendall(self.ws.send(event))

    def next(self) -> Any:
        while True:
            for event in self.ws.events():
                return event
            data = self.sock.recv(65536)
            self.ws.receive_data(data or None)


def test_text_bytes_and_pings_pass_both_ways(make_lab: MakeLab) -> None:
    lab = make_lab()
    lab.origins[API].raw = echo
    client = Client(lab)
    assert client.head.startswith(b"HTTP/1.1 101")
    client.send(TextMessage("grüße"))
    assert client.next().data == "grüße"
    client.send(BytesMessage(b"\0\xff" * 50_000))
    got = b""
    while not (event := client.next()).message_finished:
        got += event.data
    assert got + event.data == b"\0\xff" * 50_000
    client.send(Ping(b"there?"))
    assert isinstance(client.next(), Pong)
    client.send(CloseConnection(1000, "bye"))
    assert client.next().code == 1000
    lab.wait_until_idle()
    [report] = lab.reports
    assert (report["status"], report["decision"].allowed) == (101, True)
    assert report["sent"] > 100_000 < report["received"]


def test_the_parts_of_a_message_that_come_together_are_inspected_together() -> None:
    def looked_into(frames: bytes) -> list[Any]:
        side = Connection(ConnectionType.SERVER)
        side.receive_data(frames)
        return list(_gathered(side.events()))

    first, further, last = b"\x01\x81\0\0\0\0a", b"\x00\x81\0\0\0\0b", b"\x80\x81\0\0\0\0c"
    ping = b"\x89\x80\0\0\0\0"
    assert looked_into(first + (further + ping) * 200)[-1] == TextMessage("a" + 200 * "b", message_finished=False)
    assert len(looked_into(first + further * 1000)) == 4  # a turn of the loop has an end
    whole, begun = looked_into(first + further + last + first)
    assert (whole.data, whole.message_finished) == ("abc", True)
    assert (begun.data, begun.message_finished) == ("a", False)


def test_no_value_goes_where_the_handshake_is_answered_with_its_hash(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.say(
        f"GET / HTTP/1.1\r\nHost: {API}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX: {PLACEHOLDER}\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {PLACEHOLDER}\r\n\r\n".encode(),
        once=True,
    )
    fields = dict(lab.origins[API].seen[0]["headers"])
    assert (fields["x"], fields["sec-websocket-key"]) == (VALUE, PLACEHOLDER)


def test_a_secret_goes_into_the_handshake_and_its_echo_is_turned_back(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        heard.append(head)
        key = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:"))
        digest = hashlib.sha1(key.split(b": ")[1] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        writer.write(
            b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
            + base64.b64encode(digest)
            + f"\r\nX-Auth: {VALUE}\r\n\r\n".encode()
        )
        server = Connection(ConnectionType.SERVER)
        writer.write(server.send(TextMessage(f"your key is {VALUE[:9]}", message_finished=False)))
        writer.write(server.send(TextMessage(VALUE[9:])))
        await writer.drain()
        await reader.read()

    lab.origins[API].raw = listen
    client = Client(lab, [(b"Authorization", f"Bearer {PLACEHOLDER}".encode())])
    assert VALUE.encode() in heard[0]
    assert b"sec-websocket-extensions" not in heard[0].lower()
    assert f"X-Auth: {PLACEHOLDER}".encode() in client.head
    text = ""
    while not (event := client.next()).message_finished:
        text += event.data
    assert text + event.data == f"your key is {PLACEHOLDER}"
    client.sock.close()


@pytest.mark.parametrize("cut", [0, 7, 40])
def test_a_placeholder_in_a_frame_to_another_host_ends_the_connection_before_it_leaves(
    make_lab: MakeLab, cut: int
) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.host = "other.example.com"
    lab.origins[lab.host].raw = echo
    client = Client(lab)
    if cut:
        client.send(TextMessage(PLACEHOLDER[:cut], message_finished=False))
    client.send(TextMessage(PLACEHOLDER[cut:]))
    while not isinstance(event := client.next(), CloseConnection):
        assert len(event.data) < 8  # the beginning of it, as far as anything may begin so
    assert event.code == 1008
    assert "KEY must not be sent" in (event.reason or "")
    lab.wait_until_idle()
    assert lab.reports[0]["decision"].rule == "network.secrets.KEY"


def test_values_go_into_messages_only_when_asked(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret(**{"in": ["body"]})}})
    got: list[str] = []

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = WSConnection(ConnectionType.SERVER)
        while data := await reader.read(65536):
            server.receive_data(data)
            for event in server.events():
                if isinstance(event, Request):
                    writer.write(server.send(AcceptConnection()))
                elif isinstance(event, TextMessage):
                    got.append(event.data)
                    writer.write(server.send(TextMessage("thanks")))

    lab.origins[API].raw = collect
    client = Client(lab)
    client.send(TextMessage(f"key={PLACEHOLDER}"))
    assert client.next().data == "thanks"
    assert got == [f"key={VALUE}"]
    client.sock.close()


def test_control_frames_carry_no_value_in_and_no_placeholder_out(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})

    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = WSConnection(ConnectionType.SERVER)
        server.receive_data(await reader.readuntil(b"\r\n\r\n"))
        for _ in server.events():
            writer.write(server.send(AcceptConnection()))
        for event in (Ping(VALUE.encode()), Pong(VALUE.encode()), CloseConnection(1000, f"x {VALUE}")):
            writer.write(server.send(event))
        await writer.drain()
        await reader.read()

    lab.origins[API].raw = tell
    client = Client(lab)
    said = [client.next() for _ in range(3)]
    assert [type(one) for one in said] == [Ping, Pong, CloseConnection]
    assert VALUE.encode()[:9] not in bytes(said[0].payload) + bytes(said[1].payload) + said[2].reason.encode()
    client.sock.close()


@pytest.mark.parametrize("word", [PLACEHOLDER, VALUE])
@pytest.mark.parametrize("kind", ["ping", "pong", "close"])
def test_a_control_frame_with_a_secret_ends_the_connection_before_it_leaves(
    make_lab: MakeLab, kind: str, word: str
) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}})
    lab.host = "other.example.com"
    lab.origins[lab.host].raw = echo
    client = Client(lab)
    frames = {"ping": Ping(word.encode()), "pong": Pong(word.encode()), "close": CloseConnection(1000, word)}
    client.send(frames[kind])
    event = client.next()
    assert isinstance(event, CloseConnection)
    assert event.code == 1008
    lab.wait_until_idle()
    assert lab.reports[0]["decision"].rule == "network.secrets.KEY"


def test_after_the_handshake_only_frames_pass(make_lab: MakeLab) -> None:
    lab = make_lab()
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = WSConnection(ConnectionType.SERVER)
        server.receive_data(await reader.readuntil(b"\r\n\r\n"))
        for _ in server.events():
            writer.write(server.send(AcceptConnection()))
        while data := await reader.read(65536):
            heard.extend(data)

    lab.origins[API].raw = listen
    client = Client(lab)
    client.sock.sendall(b"GET /admin HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
    while client.sock.recv(65536):
        pass
    lab.wait_until_idle()
    assert b"admin" not in heard


@pytest.mark.parametrize("accept", [b"", b"Sec-WebSocket-Accept: d3Jvbmc=\r\n"])
def test_an_origin_that_did_not_accept_the_handshake_gets_no_websocket(make_lab: MakeLab, accept: bytes) -> None:
    lab = make_lab()

    async def wrong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + accept + b"\r\n")
        await writer.drain()
        await reader.read()

    lab.origins[API].raw = wrong
    client = Client(lab)
    assert client.head.startswith(b"HTTP/1.1 502")


def test_an_origin_that_refuses_the_handshake_answers_like_any_other(make_lab: MakeLab) -> None:
    lab = make_lab()
    lab.origins[API].answer = lambda *_: (401, [], b"no")
    assert Client(lab).head.startswith(b"HTTP/1.1 401")
