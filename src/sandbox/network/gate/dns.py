"""The gate's DNS: names get synthetic addresses, everything else is refused, and nothing is ever forwarded.

One query in, one response out, as bytes. A question has no compressed names (there is nothing before it to point at),
so a pointer is malformed, and there can be no loop.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from sandbox.policy.hosts import InvalidHost, canonical_host

if TYPE_CHECKING:
    from collections.abc import Callable

    # (canonical name, query type) -> the name's IPv4 and IPv6 address, or None to refuse.
    Lookup = Callable[[str, str], tuple[bytes, bytes] | None]

MAX_MESSAGE = 1232  # what EDNS recommends over UDP; queries are much smaller

_HEADER = struct.Struct(">HHHHHH")
_A, _AAAA, _OPT, _ANY = 1, 28, 41, 255
_TYPES = {_A: "A", 2: "NS", 5: "CNAME", 6: "SOA", 12: "PTR", 15: "MX", 16: "TXT", _AAAA: "AAAA", 33: "SRV"} | {
    64: "SVCB", 65: "HTTPS", _ANY: "ANY"
}  # fmt: skip
_NOERROR, _FORMERR, _NOTIMP, _REFUSED = 0, 1, 4, 5
_TTL = 60


class _Malformed(Exception):
    pass


def answer(message: bytes, lookup: Lookup) -> bytes | None:
    """The response to `message`; None when it is not a query, or too short to have an id."""
    if len(message) < _HEADER.size:
        return None
    ident, flags, questions, answers, authorities, additional = _HEADER.unpack_from(message)
    if flags & 0x8000:
        return None  # a response: answering could start a loop
    if flags & 0x7800:
        return _response(ident, flags, _NOTIMP)
    try:
        if len(message) > MAX_MESSAGE or (questions, answers, authorities) != (1, 0, 0) or additional > 1:
            raise _Malformed
        name, at = _name(message, _HEADER.size)
        kind, group = _unpack(">HH", message, at)
        question = message[_HEADER.size : at + 4]
        edns = _edns(message, at + 4, additional)
    except _Malformed:
        return _response(ident, flags, _FORMERR)
    addresses = None
    if group in (1, _ANY):
        try:
            addresses = lookup(canonical_host(name), _TYPES.get(kind, f"TYPE{kind}"))
        except InvalidHost:
            pass
    if addresses is None:
        return _response(ident, flags, _REFUSED, question, edns=edns)
    wanted = {_A: [(_A, addresses[0])], _AAAA: [(_AAAA, addresses[1])]}
    wanted[_ANY] = wanted[_A] + wanted[_AAAA]
    # Other types are answered as empty. HTTPS records, for one, could name other ports and keys.
    return _response(ident, flags, _NOERROR, question, wanted.get(kind, []), edns)


def _name(message: bytes, at: int) -> tuple[str, int]:
    labels: list[str] = []
    start = at
    while True:
        (length,) = _unpack(">B", message, at)
        at += 1
        if length == 0:
            return ".".join(labels), at
        if length > 63 or at + length > len(message) or at + length - start > 254:
            raise _Malformed
        label = message[at : at + length]
        if not label.isascii() or b"." in label:
            raise _Malformed
        labels.append(label.decode("ascii"))
        at += length


def _edns(message: bytes, at: int, additional: int) -> bool:
    """Whether an OPT record follows, and nothing after it."""
    if additional:
        root, kind, _size, _ttl, length = _unpack(">BHHIH", message, at)
        if root != 0 or kind != _OPT:
            raise _Malformed
        at += 11 + length
    if at != len(message):
        raise _Malformed
    return bool(additional)


def _unpack(form: str, message: bytes, at: int) -> tuple[int, ...]:
    try:
        return struct.unpack_from(form, message, at)
    except struct.error:
        raise _Malformed from None


def _response(
    ident: int,
    flags: int,
    code: int,
    question: bytes = b"",
    records: list[tuple[int, bytes]] | None = None,
    edns: bool = False,
) -> bytes:
    records = records or []
    # QR, the query's own opcode and RD, recursion available
    head = _HEADER.pack(ident, 0x8080 | flags & 0x7900 | code, bool(question), len(records), 0, edns)
    body = [struct.pack(">HHHIH", 0xC00C, kind, 1, _TTL, len(data)) + data for kind, data in records]
    opt = struct.pack(">BHHIH", 0, _OPT, MAX_MESSAGE, 0, 0) if edns else b""
    return head + question + b"".join(body) + opt
