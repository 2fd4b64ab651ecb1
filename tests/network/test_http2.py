"""HTTP/2 through the gate: many streams, flow control, gRPC's way of talking, and attackers' ways."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import pytest

from tests.network.lab import PLACEHOLDER, VALUE, Lab, secret

MakeLab = Callable[..., Lab]
API = "api.example.com"
H2 = ["h2", "http/1.1"]
GRPC = {"_content_type": "application/grpc"}


class Client:
    """A small HTTP/2 client that shows every event."""

    def __init__(self, lab: Lab, *, validate: bool = True, tls: bool = True) -> None:
        self.sock: socket.socket
        if tls:
            self.sock = secured = lab.tls_socket(protocols=["h2"])
            assert secured.selected_alpn_protocol() == "h2"
        else:
            self.sock = socket.create_connection(("127.0.0.1", lab.port), timeout=30)
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                header_encoding="utf-8",
                validate_outbound_headers=validate,
                normalize_outbound_headers=validate,
            )
        )
        self.h2.initiate_connection()
        self.events: list[h2.events.Event] = []
        self.flush()

    def flush(self) -> None:
        self.sock.sendall(self.h2.data_to_send())

    def begin(self, path: str = "/", *, end: bool = True, method: str = "GET", **pseudo: str) -> int:
        number = self.h2.get_next_available_stream_id()
        fields = {":method": method, ":scheme": "https", ":authority": API, ":path": path}
        fields |= {f":{name}": value for name, value in pseudo.items() if not name.startswith("_")}
        extra = [(name[1:].replace("_", "-"), value) for name, value in pseudo.items() if name.startswith("_")]
        self.h2.send_headers(number, [*fields.items(), *extra], end_stream=end)
        self.flush()
        return number

    def until(self, wanted: Callable[[h2.events.Event], bool]) -> h2.events.Event:
        """Reads until an event is the wanted one."""
        while True:
            while self.events:
                one = self.events.pop(0)
                if isinstance(one, h2.events.DataReceived) and one.flow_controlled_length:
                    self.h2.acknowledge_received_data(one.flow_controlled_length, one.stream_id)
                    self.flush()
                if wanted(one):
                    return one
            data = self.sock.recv(65536)
            if not data:
                raise ConnectionError("closed")
            self.events += self.h2.receive_data(data)
            self.flush()

    def answer(self, number: int) -> tuple[dict[str, str], bytes, dict[str, str]]:
        """Head, body and trailers of the answer to one stream."""
        head: dict[str, str] = {}
        trailers: dict[str, str] = {}
        body = b""

        def ended(one: h2.events.Event) -> bool:
            nonlocal head, trailers, body
            if getattr(one, "stream_id", None) != number:
                return False
            if isinstance(one, h2.events.StreamReset):
                raise ConnectionError(f"reset {one.error_code}")
            if isinstance(one, h2.events.ResponseReceived):
                head = _texts(one.headers)
            elif isinstance(one, h2.events.TrailersReceived):
                trailers = _texts(one.headers)
            elif isinstance(one, h2.events.DataReceived):
                body += one.data
            return isinstance(one, h2.events.StreamEnded)

        self.until(ended)
        return head, body, trailers

    def close(self) -> None:
        self.sock.close()


def _texts(headers: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in headers}


@pytest.fixture
def make_client() -> Any:
    made: list[Client] = []

    def make(lab: Lab, **more: Any) -> Client:
        made.append(Client(lab, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_tenant_is_offered_what_upstream_speaks(make_lab: MakeLab) -> None:
    lab = make_lab(hosts={API: H2, "other.example.com": ["http/1.1"]})
    with lab.tls_socket(protocols=H2) as sock:
        assert sock.selected_alpn_protocol() == "h2"
    with lab.tls_socket() as sock:  # a client that knows only HTTP/1.1
        assert sock.selected_alpn_protocol() is None
    lab.host = "other.example.com"
    with lab.tls_socket(protocols=H2) as sock:
        assert sock.selected_alpn_protocol() == "http/1.1"


def test_many_streams_are_answered_side_by_side_over_one_connection(make_lab: MakeLab, make_client: Any) -> None:
    lab = make_lab(protocols=H2)
    client = make_client(lab)
    numbers = [client.begin(f"/{one}") for one in range(50)]
    answers: dict[int, bytes] = dict.fromkeys(numbers, b"")
    open_streams = set(numbers)
    while open_streams:
        one = client.until(lambda event: isinstance(event, h2.events.DataReceived | h2.events.StreamEnded))
        if isinstance(one, h2.events.DataReceived):
            answers[one.stream_id] += one.data
        else:
            open_streams.discard(one.stream_id)
    assert [json.loads(answers[one])["target"] for one in numbers] == [f"/{one}" for one in range(50)]
    assert lab.origins[API].connections == 1


def test_secrets_go_in_and_are_blocked_in_http2_too(make_lab: MakeLab, make_client: Any) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}}, protocols=H2)
    client = make_client(lab)
    _, body, _ = client.answer(client.begin("/", _authorization=f"Bearer {PLACEHOLDER}"))
    assert dict(lab.origins[API].seen[0]["headers"])["authorization"] == f"Bearer {VALUE}"
    assert VALUE.encode() not in body
    lab.host = "other.example.com"
    other = make_client(lab)
    number = other.begin("/", end=False, method="POST", authority="other.example.com")
    other.h2.send_data(number, PLACEHOLDER[:10].encode())
    other.h2.send_data(number, PLACEHOLDER[10:].encode(), end_stream=True)
    other.flush()
    head, text, _ = other.answer(number)
    assert head[":status"] == "403"
    assert b"the secret KEY must not be sent" in text
    assert lab.origins["other.example.com"].seen == []


def test_grpc_talks_both_ways_at_once_and_ends_with_trailers(make_lab: MakeLab, make_client: Any) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}}, protocols=H2)
    client = make_client(lab)
    number = client.begin("/stream/chat", end=False, method="POST", _te="trailers", **GRPC)
    client.until(lambda one: isinstance(one, h2.events.ResponseReceived))  # before anything was said
    for text in (b"\0\0\0\0\x03one", b"\0\0\0\0\x0dtwo ends in s", b"\0\0\0\0\x05three"):
        client.h2.send_data(number, text)
        client.flush()
        got = client.until(lambda one: isinstance(one, h2.events.DataReceived) and bool(one.data))
        assert got.data == text
    client.h2.end_stream(number)
    client.flush()
    got = client.until(lambda one: isinstance(one, h2.events.TrailersReceived))
    assert ("grpc-status", "0") in got.headers


def test_no_trailer_of_a_request_reaches_the_host(make_lab: MakeLab, make_client: Any) -> None:
    lab = make_lab(protocols=H2)
    client = make_client(lab)
    number = client.begin("/", end=False, method="POST")
    client.h2.send_data(number, b"x")
    client.h2.send_headers(number, [("x-api-key", "9"), ("host", "9")], end_stream=True)
    client.flush()
    assert client.answer(number)[0][":status"] == "200"
    seen = lab.origins[API].seen[-1]
    assert seen["body"] == b"x" and [name for name, value in seen["headers"] if value == "9"] == []


def test_a_stream_where_bodies_are_searched_still_talks_both_ways(make_lab: MakeLab, make_client: Any) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}}, protocols=H2)
    lab.host = "other.example.com"
    client = make_client(lab)
    number = client.begin("/stream/chat", end=False, method="POST", authority="other.example.com", **GRPC)
    client.until(lambda one: isinstance(one, h2.events.ResponseReceived))
    client.h2.send_data(number, b"\0\0\0\0\x09ends in S")
    client.flush()
    got = client.until(lambda one: isinstance(one, h2.events.DataReceived) and bool(one.data))
    assert got.data == b"\0\0\0\0\x09ends in S"
    client.h2.send_data(number, PLACEHOLDER.encode())
    client.flush()
    client.until(lambda one: isinstance(one, h2.events.StreamReset))
    client.close()
    lab.wait_until_idle()
    assert [one["decision"].rule for one in lab.reports] == ["network.secrets.KEY"]


def test_large_bodies_pass_both_ways_under_flow_control(make_lab: MakeLab, make_client: Any) -> None:
    lab = make_lab(protocols=H2)
    lab.origins[API].answer = lambda *args: (200, [], b"%d" % len(args[3]))
    client = make_client(lab)
    number = client.begin("/", end=False, method="POST")
    size, sent = 3 * 2**20, 0
    while sent < size:
        room = min(client.h2.local_flow_control_window(number), client.h2.max_outbound_frame_size, size - sent)
        if room == 0:
            client.until(lambda one: isinstance(one, h2.events.WindowUpdated))
            continue
        client.h2.send_data(number, b"x" * room, end_stream=sent + room == size)
        client.flush()
        sent += room
    assert client.answer(number)[1] == b"%d" % size


def test_a_tenant_that_does_not_read_stops_the_origin(make_lab: MakeLab, make_client: Any) -> None:
    lab = make_lab(protocols=H2)
    written = 0
    stuck = asyncio.Event()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        number = 0
        while not stuck.is_set():
            writer.write(connection.data_to_send())
            await writer.drain()
            while number and (room := min(connection.local_flow_control_window(number), 16384)):
                connection.send_data(number, b"d" * room)
                written += room
                writer.write(connection.data_to_send())
                await writer.drain()
            try:
                async with asyncio.timeout(1 if number else None):  # the request may take longer to come
                    data = await reader.read(65536)
            except TimeoutError:
                stuck.set()
                continue
            for one in connection.receive_data(data):
                if isinstance(one, h2.events.RequestReceived):
                    number = one.stream_id
                    connection.send_headers(number, [(":status", "200")])

    lab.origins[API].raw = flood
    client = make_client(lab)
    client.begin("/")
    lab.thread.run(stuck.wait())
    assert 0 < written < 4 * 2**20


REFUSED = {
    "another host": {"authority": "other.example.com"},
    "another scheme": {"scheme": "http"},
    "a path that is none": {"path_": "no-slash"},
    "a space in the path": {"path_": "/a b"},
    "a length without a body": {"_content_length": "5"},
    "no method": {"method": ""},
    "a method with a path in it": {"method": "POST /admin?"},
    "a method with a control character": {"method": "GET\x0b"},
    "a method that is no word": {"method": "GET,POST"},
}


@pytest.mark.parametrize("what", REFUSED)
def test_ambiguous_streams_are_refused(make_lab: MakeLab, make_client: Any, what: str) -> None:
    lab = make_lab(protocols=H2)
    client = make_client(lab, validate=False)
    fields = dict(REFUSED[what])
    head, _, _ = client.answer(client.begin(fields.pop("path_", "/"), **fields))
    assert head[":status"] in ("400", "421")
    assert lab.origins[API].seen == []


def test_a_body_shorter_than_its_length_is_refused_also_when_trailers_end_it(
    make_lab: MakeLab, make_client: Any
) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}}, protocols=H2)
    client = make_client(lab, validate=False)
    number = client.begin("/", end=False, method="POST", _content_length="50")
    client.h2.send_data(number, b"short")
    client.h2.send_headers(number, [("x-end", "1")], end_stream=True)
    client.flush()
    head, _, _ = client.answer(number)
    assert head[":status"] == "400"
    assert lab.origins[API].seen == []


def test_a_stream_that_names_two_hosts_ends_the_connection(make_lab: MakeLab, make_client: Any) -> None:
    lab = make_lab(protocols=H2)
    client = make_client(lab, validate=False)
    with pytest.raises(ConnectionError):
        client.answer(client.begin("/", _host="other.example.com"))
    assert lab.origins[API].seen == []


def test_a_tunnel_in_a_stream_is_refused(make_lab: MakeLab, make_client: Any) -> None:
    lab = make_lab(protocols=H2)
    client = make_client(lab, validate=False)
    number = client.h2.get_next_available_stream_id()
    client.h2.send_headers(number, [(":method", "CONNECT"), (":authority", "other.example.com:443")], end_stream=True)
    client.flush()
    with pytest.raises(ConnectionError):
        head, _, _ = client.answer(number)
        assert head[":status"] == "405"
        raise ConnectionError
    assert lab.dialled == ["api.example.com:443"]


def test_rapid_resets_end_the_connection_and_nobody_elses(make_lab: MakeLab, make_client: Any) -> None:
    lab = make_lab(protocols=H2)
    attacker, other = make_client(lab), make_client(lab)
    with pytest.raises((OSError, h2.exceptions.ProtocolError)):
        for _ in range(100):
            for _ in range(20):
                number = attacker.begin("/", end=False)
                attacker.h2.reset_stream(number)
            attacker.flush()
        attacker.until(lambda one: isinstance(one, h2.events.ConnectionTerminated))
        raise ConnectionResetError
    with ThreadPoolExecutor(1) as aside:  # in this one OpenSSL still holds the attacker's error: CPython 148594
        assert aside.submit(lambda: other.answer(other.begin("/"))).result()[0][":status"] == "200"
    assert len(lab.origins[API].seen) < 2000


def test_an_origin_that_says_goodbye_lets_its_streams_end(make_lab: MakeLab, make_client: Any) -> None:
    lab = make_lab(protocols=H2)

    async def goodbye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        while data := await reader.read(65536):
            for one in connection.receive_data(data):
                if isinstance(one, h2.events.RequestReceived):
                    connection.send_headers(one.stream_id, [(":status", "200")])
                    head = connection.data_to_send()
                    connection.send_data(one.stream_id, b"after goodbye", end_stream=True)
                    last = connection.data_to_send()
                    bye = b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + one.stream_id.to_bytes(4, "big") + bytes(4)
                    writer.write(head + bye + last)
            writer.write(connection.data_to_send())

    lab.origins[API].raw = goodbye
    client = make_client(lab)
    for _ in range(3):  # each on a connection of its own
        assert client.answer(client.begin("/"))[1] == b"after goodbye"
    assert lab.origins[API].connections == 3


def test_an_origin_that_resets_a_stream_ends_that_stream_only(make_lab: MakeLab, make_client: Any) -> None:
    lab = make_lab(protocols=H2)

    async def picky(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        while data := await reader.read(65536):
            for one in connection.receive_data(data):
                if isinstance(one, h2.events.RequestReceived):
                    if _texts(one.headers)[":path"] == "/bad":
                        connection.reset_stream(one.stream_id, h2.errors.ErrorCodes.REFUSED_STREAM)
                    else:
                        connection.send_headers(one.stream_id, [(":status", "204")], end_stream=True)
            writer.write(connection.data_to_send())

    lab.origins[API].raw = picky
    client = make_client(lab)
    assert client.answer(client.begin("/bad"))[0][":status"] == "502"
    assert client.answer(client.begin("/good"))[0][":status"] == "204"


@pytest.mark.parametrize("status", ["2xx", "1xx", "", "-20", "2000", "101"])
def test_an_origin_without_a_readable_status_is_a_502_at_once(make_lab: MakeLab, make_client: Any, status: str) -> None:
    lab = make_lab(protocols=H2)

    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        config = h2.config.H2Configuration(client_side=False, validate_outbound_headers=False)
        connection = h2.connection.H2Connection(config)
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        while data := await reader.read(65536):
            for one in connection.receive_data(data):
                if isinstance(one, h2.events.RequestReceived):
                    connection.send_headers(one.stream_id, [(":status", status)], end_stream=not status.startswith("1"))
            writer.write(connection.data_to_send())

    lab.origins[API].raw = odd
    client = make_client(lab)
    assert client.answer(client.begin("/"))[0][":status"] == "502"


def test_http2_without_tls_is_inspected_as_well(make_lab: MakeLab, make_client: Any) -> None:
    lab = make_lab({"http": {"deny": ["GET api.example.com/private"]}, "secrets": {"KEY": secret()}})
    lab.destination_port, lab.plain.speaks_http2 = 80, True
    client = make_client(lab, tls=False)
    assert client.answer(client.begin("/open", scheme="http"))[0][":status"] == "200"
    assert client.answer(client.begin("/private", scheme="http"))[0][":status"] == "403"
    assert client.answer(client.begin("/open", scheme="http", _x=PLACEHOLDER))[0][":status"] == "403"
    assert [one["target"] for one in lab.plain.seen] == ["/open"]


def test_curl_speaks_http2_through_the_gate(make_lab: MakeLab) -> None:
    lab = make_lab(protocols=H2)
    route = ["--connect-to", f"{API}:443:127.0.0.1:{lab.port}", "--cacert", lab.ca_file]
    show = ["-w", "%{http_version}", "-o", "/dev/null"]
    curl = ["curl", "-sS", "--http2", *route, *show, f"https://{API}/"]
    done = subprocess.run(curl, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("2", "")


@pytest.mark.parametrize(
    "junk", [b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", b"\0" * 100, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff" * 3]
)
def test_junk_instead_of_frames_ends_the_connection(make_lab: MakeLab, junk: bytes) -> None:
    lab = make_lab(protocols=H2)
    sock = lab.tls_socket(protocols=["h2"])
    with sock:
        sock.sendall(junk)
        try:
            while sock.recv(65536):
                pass
        except (ssl.SSLError, ConnectionError):
            pass
    lab.wait_until_idle()
    assert lab.raised == []
