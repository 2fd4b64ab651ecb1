"""What a ClientHello asks for: the host's name (SNI) and the protocols (ALPN). The only parser of it; pure.

It is strict. A message that a server might read differently from us (two names, an extension that runs past the end) is
not accepted as a ClientHello.
"""

from __future__ import annotations

HANDSHAKE = b"\x16"  # the first byte of a handshake record: how every TLS connection begins
OTHER_RECORDS = b"\x14\x15\x17\x18"  # the first bytes of records of all other types
MAX_RECORD = 16384
_CLIENT_HELLO = 1
_SERVER_NAME, _ALPN = 0, 16


class ClientHello:
    """`server_name` is None when the client named no host."""

    __slots__ = ("server_name", "protocols")

    def __init__(self, server_name: str | None = None, protocols: tuple[str, ...] = ()) -> None:
        self.server_name = server_name
        self.protocols = protocols


def begins_record(data: bytes) -> bool:
    """Whether the first two bytes of a connection are those of a TLS record, of any type. Some servers skip others
    before the ClientHello (Go's skips alerts)."""
    return data[:1] == HANDSHAKE or (data[:1] in OTHER_RECORDS and data[1:2] == b"\x03")


def read_client_hello(data: bytes) -> ClientHello | None:
    """The ClientHello that `data` begins with; None when more bytes are needed to tell.

    Raises ValueError when `data` does not begin with a well-formed one.
    """
    body = _handshake(data)
    if body is None:
        return None
    try:
        return _parse(body)
    except IndexError:
        raise ValueError("the ClientHello is truncated") from None


def _handshake(data: bytes) -> bytes | None:
    """The handshake message, taken out of its records; it may be spread over several."""
    message, at = bytearray(), 0
    while True:
        if data[at : at + 1] not in (b"", HANDSHAKE):
            raise ValueError("not a TLS handshake record")
        if len(data) < at + 5:
            return None
        size = _number(data, at + 3, 2)
        if data[at + 1] != 3 or not 0 < size <= MAX_RECORD:
            raise ValueError("not a TLS record")
        message += data[at + 5 : at + 5 + size]
        if len(message) >= 4:
            length = _number(message, 1, 3)
            if message[0] != _CLIENT_HELLO or length > MAX_RECORD:
                raise ValueError("not a ClientHello")
            if len(message) >= 4 + length:
                return bytes(message[4 : 4 + length])
        if len(data) < at + 5 + size:
            return None
        at += 5 + size


def _parse(body: bytes) -> ClientHello:
    at = 2 + 32  # version, random
    at += 1 + body[at]  # session id
    at += 2 + _number(body, at, 2)  # cipher suites
    at += 1 + body[at]  # compression methods
    if at == len(body):
        return ClientHello()
    if at + 2 + _number(body, at, 2) != len(body):
        raise ValueError("the extensions do not fill the ClientHello")
    at += 2
    found: dict[int, bytes] = {}
    while at < len(body):
        kind, size = _number(body, at, 2), _number(body, at + 2, 2)
        at += 4 + size
        if at > len(body):
            raise ValueError("an extension is longer than the ClientHello")
        if kind in found:
            raise ValueError("an extension appears twice")  # the server may read the other one
        found[kind] = body[at - size : at]
    name, protocols = found.get(_SERVER_NAME), found.get(_ALPN)
    return ClientHello(
        None if name is None else _server_name(name), () if protocols is None else tuple(_protocols(protocols))
    )


def _server_name(data: bytes) -> str:
    """The one host name of a server_name extension."""
    size = _number(data, 3, 2)
    if len(data) != 5 + size or _number(data, 0, 2) != 3 + size or data[2] != 0 or not size:
        raise ValueError("the server name is not one host name")
    return data[5:].decode("ascii")


def _protocols(data: bytes) -> list[str]:
    if _number(data, 0, 2) != len(data) - 2:
        raise ValueError("the protocols do not fill their extension")
    found, at = [], 2
    while at < len(data):
        size = data[at]
        if not size or at + 1 + size > len(data):
            raise ValueError("a protocol is longer than its extension")
        found.append(data[at + 1 : at + 1 + size].decode("latin-1"))
        at += 1 + size
    return found


def _number(data: bytes | bytearray, at: int, size: int) -> int:
    """The big-endian number at `at`. Raises IndexError when it is not all there."""
    if at + size > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + size], "big")
