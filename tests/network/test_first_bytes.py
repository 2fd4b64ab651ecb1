"""First bytes are recognised for what they are, however little or odd they are."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.network.gate.first_bytes import MOST, Detected, detect


def client_hello(name: str | None) -> bytes:
    """What OpenSSL really sends."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def name_in(found: Detected) -> str | None:
    assert found.hello is not None
    return found.hello.server_name


def test_a_client_hello_has_its_name() -> None:
    found = detect(client_hello("api.example.com"))
    assert (found.kind, name_in(found)) == ("tls", "api.example.com")
    found = detect(client_hello(None))
    assert (found.kind, name_in(found)) == ("tls", None)


def test_half_a_client_hello_needs_more() -> None:
    hello = client_hello("api.example.com")
    for cut in range(1, len(hello)):
        assert detect(hello[:cut]).kind == "more", cut


def test_a_client_hello_split_over_records_is_put_together() -> None:
    body = client_hello("split.example.com")[5:]
    pieces = [body[at : at + 50] for at in range(0, len(body), 50)]
    data = b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)
    found = detect(data)
    assert (found.kind, name_in(found)) == ("tls", "split.example.com")


def test_two_names_in_one_hello_are_nothing_we_read() -> None:
    hello = bytearray(client_hello("aaaa.example.com"))
    at = hello.index(b"\0\0", hello.index(b"aaaa.example.com") - 9)
    extension = bytes(hello[at : at + 4 + int.from_bytes(hello[at + 2 : at + 4], "big")])
    doubled = bytes(hello) + extension
    body = bytearray(doubled[9:])
    sessions = 34 + 1 + body[34]
    ciphers = sessions + 2 + int.from_bytes(body[sessions : sessions + 2], "big")
    compressions = ciphers + 1 + body[ciphers]
    size = int.from_bytes(body[compressions : compressions + 2], "big") + len(extension)
    body[compressions : compressions + 2] = size.to_bytes(2, "big")
    message = b"\1" + len(body).to_bytes(3, "big") + body
    assert detect(b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message).kind == "other"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "more"),
        (b"GET / HTTP/1.1\r\n", "http"),
        (b"GET / HTTP/1.1", "more"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "http"),
        (b"CONNECT x:443 HTTP/1.1\r\n", "http"),
        (b"SET key value\r\n", "other"),
        (b"GET key\r\n", "other"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "other"),
        (b"\0\0\0\x08\x04\xd2\x16\x2f", "other"),
        (b"*1\r\n$4\r\nPING\r\n", "other"),
        (b"\x16\x02\x00\x00\x05hello", "other"),
        (b"\x16\x03\x01\xff\xff", "other"),
        (b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", "other"),
        (b"A" * 30, "other"),
        (b"GET /" + b"a" * MOST, "http"),
    ],
)
def test_protocols_are_distinguished(data: bytes, kind: str) -> None:
    assert detect(data).kind == kind


@given(st.binary(max_size=400))
def test_no_bytes_break_it(data: bytes) -> None:
    detect(data)
    detect(b"\x16\x03\x01" + data)
    detect(b"\x16\x03\x01" + len(data).to_bytes(2, "big") + data)


@given(st.data())
def test_a_damaged_client_hello_is_still_judged(data: st.DataObject) -> None:
    hello = bytearray(client_hello("api.example.com"))
    for at in data.draw(st.lists(st.integers(0, len(hello) - 1), max_size=5)):
        hello[at] = data.draw(st.integers(0, 255))
    assert detect(bytes(hello)).kind in ("tls", "other", "more")
