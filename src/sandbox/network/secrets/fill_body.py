"""Putting a value into a body, as the body's kind writes text; refused where that is not known.

A value with a quotation mark would otherwise end a JSON string, and one with an `&` begin another field of a form.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

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


def filled(headers: Headers, body: Body, words: Mapping[bytes, bytes], refusal: Callable[[bytes, str], Denied]) -> Body:
    """`body` with `words` (a placeholder's value by the placeholder) put in; a placeholder whose value cannot be
    written there raises what `refusal` makes of it and the reason. Its length is no longer known."""
    kind = headers.media_type
    written = {word: written_in(kind, value) for word, value in words.items()}
    usable = {word: value for word, value in written.items() if value is not None}
    others = [word for word, value in written.items() if value is None]
    body = decoded(headers, body)
    if others:
        why = f"its value cannot be written into a body of type {kind[:60]!r}: use JSON, XML, a form or text/plain"
        body = Guarded(body, others, None, lambda word: refusal(word, why))
    if usable:
        body = replaced(body, usable)
        headers.remove("Content-Length")  # the value is not as long as its placeholder
    return body


def written_in(kind: str, value: bytes) -> bytes | None:
    """`value` as a body of the media type `kind` writes it; None when that is not known."""
    text = value.decode("ascii")
    if kind.endswith(("json", "jsonl")):
        return json.dumps(text)[1:-1].encode()
    if kind == "application/x-www-form-urlencoded":
        return quote(value, safe="").encode()
    if kind.endswith("xml"):
        return "".join(_XML.get(letter, letter) for letter in text).encode()
    if kind in _AS_IT_IS or (kind == "multipart/form-data" and '"' not in text):
        return value
    # Whatever quotes or separates in a text is none of these. Other kinds count their bytes.
    return value if kind.startswith("text/") and PLAIN.issuperset(text) else None


def written_in_message(value: bytes) -> bytes | None:
    """`value` in a WebSocket's message, which has no type and mostly is JSON: only when that writes it as it is."""
    return value if written_in("application/json", value) == value else None
