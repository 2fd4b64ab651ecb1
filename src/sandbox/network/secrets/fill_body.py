"""Inserts a value into a body, escaped as the body's media type requires. Unknown types are refused.

Otherwise a value with a quotation mark could end a JSON string, and one with an `&` could begin another form field.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

from sandbox.errors import Message
from sandbox.network.http.compression import decoded
from sandbox.network.secrets.guarded_body import Guarded
from sandbox.network.secrets.placeholder_search import replaced
from sandbox.network.secrets.placeholders import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandbox.errors import Denied
    from sandbox.network.http.body import Body
    from sandbox.network.http.headers import Headers

_AS_IT_IS = ("", "text/plain", "application/octet-stream")
_XML = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}


def filled(
    headers: Headers,
    body: Body,
    words: Mapping[bytes, bytes],
    refusal: Callable[[bytes, str], Denied],
    inserted: Callable[[bytes], None],
) -> Body:
    """`body` with `words` (values by placeholder) inserted; `inserted` is called with each placeholder that was there.
    Reading it raises `refusal(placeholder, reason)` for a placeholder whose value cannot be written there. The length
    is no longer known."""
    kind = headers.media_type
    written = {word: written_in(kind, value) for word, value in words.items()}
    usable = {word: value for word, value in written.items() if value is not None}
    others = [word for word, value in written.items() if value is None]
    body = decoded(headers, body)
    if others:
        why = Message(
            "its value cannot be written into a body of type {kind!r}: use JSON, XML, a form or text/plain",
            kind=kind[:60],
        )
        body = Guarded(body, others, None, lambda word: refusal(word, why))
    if usable:
        body = replaced(body, usable, inserted)
        headers.remove("Content-Length")  # the value is not as long as its placeholder
    return body


def written_in(kind: str, value: bytes) -> bytes | None:
    """`value` escaped for a body of the media type `kind`; None when the type is unknown."""
    text = value.decode("ascii")
    if kind.endswith(("json", "jsonl")):
        return json.dumps(text)[1:-1].encode()
    if kind == "application/x-www-form-urlencoded":
        return quote(value, safe="").encode()
    if kind.endswith("xml"):
        return "".join(_XML.get(letter, letter) for letter in text).encode()
    if kind in _AS_IT_IS or (kind == "multipart/form-data" and '"' not in text):
        return value
    # None of these characters quotes or separates in any text format. Other types count their bytes.
    return value if kind.startswith("text/") and PLAIN.issuperset(text) else None


def written_in_message(value: bytes) -> bytes | None:
    """`value` for a WebSocket message, which has no type and usually is JSON: None when JSON would escape it."""
    return value if written_in("application/json", value) == value else None
