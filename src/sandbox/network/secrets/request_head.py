"""A request's head as secrets see it: its method, target and fields, with Basic credentials decoded."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox.network.http.headers import Pair
    from sandbox.network.http.message import Request

SCHEMES_IN_BASE64 = ("basic",)


def request_head(request: Request) -> bytes:
    """Everything in a request except its body, to search for placeholders. Basic credentials are also decoded."""
    fields = [name + b": " + value for name, value in request.headers.pairs]
    decoded_fields = [plain for _, value in request.headers.pairs if (plain := _basic(value)[1])]
    line = [request.method.encode("latin-1"), request.target.encode("latin-1")]
    return b"\n".join([*line, *fields, *decoded_fields])


def filled_field(pair: Pair, placeholder: bytes, secret: bytes) -> Pair:
    """A header field with the value in place of the placeholder, also inside Basic credentials."""
    name, value = pair
    if name.lower() == b"sec-websocket-key":
        return pair  # WebSocket servers answer with its hash, which would allow guessing
    scheme, plain = _basic(value)
    if placeholder in plain:
        return name, scheme + b" " + base64.b64encode(plain.replace(placeholder, secret))
    return name, value.replace(placeholder, secret)


def _basic(value: bytes) -> tuple[bytes, bytes]:
    """Scheme and decoded credentials of a `Basic` field; empty for any other."""
    scheme, encoded = (*value.split(None, 1), b"", b"")[:2]  # servers also accept a tab
    if scheme.lower().decode("latin-1") not in SCHEMES_IN_BASE64:
        return b"", b""
    try:
        return scheme, base64.b64decode(encoded.strip() + b"==", validate=False)
    except binascii.Error:
        return b"", b""
