"""Server-sent events: their text, and a response whose work stops when the client disconnects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from litestar.response import Stream

_ENCODER = msgspec.json.Encoder(enc_hook=str)  # a `Message` in an event is text
KEEP_ALIVE = b": still here\n\n"
PAUSE = 15.0  # seconds without an event before a comment is sent, so that a dead connection is noticed


def event(name: str, data: Any, id: int | str | None = None) -> bytes:
    """One event. The data is JSON, which has no line breaks."""
    number = b"" if id is None else f"id: {id}\n".encode()
    return b"%bevent: %b\ndata: %b\n\n" % (number, name.encode(), _ENCODER.encode(data))


def response(events: AsyncIterator[bytes]) -> Stream:
    """The answer. Its generator is closed when the client disconnects."""
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return Stream(events, media_type="text/event-stream", headers=headers)
