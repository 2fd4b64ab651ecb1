"""A ClientHello tells its server name and protocols; anything malformed is refused."""

from __future__ import annotations

import ssl
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.network.tls.client_hello import ClientHello, read_client_hello


def hello(name: str, protocols: list[str]) -> bytes:
    """A ClientHello as OpenSSL writes it."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(protocols)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


HELLO = hello("api.example.com", ["h2", "http/1.1"])


def read(data: bytes) -> ClientHello:
    found = read_client_hello(data)
    assert found is not None
    return found


def records(message: bytes) -> bytes:
    return b"\x16\x03\x01" + struct.pack(">H", len(message)) + message


def with_extension(kind: int, content: bytes) -> bytes:
    """HELLO with one more extension at its end."""
    body = bytearray(HELLO[9:])
    at = 34 + 1 + body[34]
    at += 2 + int.from_bytes(body[at : at + 2], "big")
    at += 1 + body[at]
    body += struct.pack(">HH", kind, len(content)) + content
    body[at : at + 2] = struct.pack(">H", len(body) - at - 2)
    return records(b"\x01" + len(body).to_bytes(3, "big") + body)


def test_a_hello_has_its_name_and_protocols() -> None:
    assert (read(HELLO).server_name, read(HELLO).protocols) == ("api.example.com", ("h2", "http/1.1"))


def test_a_hello_split_over_records_is_put_together() -> None:
    body = HELLO[5:]
    split = b"".join(map(records, (body[:7], body[7:100], body[100:])))
    assert read(split).server_name == "api.example.com"


def test_an_unknown_extension_is_ignored() -> None:
    assert read(with_extension(0x3A3A, b"")).server_name == "api.example.com"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (0, b"\0\x08\0\0\x05a.com"),  # a second server name: the server may read that one
        (16, b"\0\x03\x02h2"),  # a second list of protocols
    ],
)
def test_an_extension_that_appears_twice_is_refused(kind: int, content: bytes) -> None:
    with pytest.raises(ValueError, match="twice"):
        read_client_hello(with_extension(kind, content))


@given(st.binary(max_size=400))
def test_garbage_is_never_a_hello(data: bytes) -> None:
    for garbage in (b"\x16\x03\x01" + data, records(data)):
        try:
            assert read_client_hello(garbage) is None
        except ValueError:
            pass


@given(st.integers(0, len(HELLO) - 1), st.integers(0, 255), st.integers(0, len(HELLO)))
def test_a_mangled_hello_is_read_or_refused(at: int, byte: int, end: int) -> None:
    mangled = bytearray(HELLO)
    mangled[at] = byte
    try:
        read_client_hello(bytes(mangled[:end]))
    except ValueError:
        pass
