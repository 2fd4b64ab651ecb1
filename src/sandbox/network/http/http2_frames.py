"""The frames of an HTTP/2 connection as they arrive, for two things that h2 does not do as a proxy needs them.

h2 reads a frame of any length to its end before it says that the frame is too large. And it ends every stream at a
GOAWAY, although RFC 9113 (6.8) lets the streams that the sender has seen continue. Pure: bytes in, bytes and `GoAway`s
out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFACE = 24  # bytes that a client sends before its first frame
_HEAD = 9
_GOAWAY = 7


class FrameTooLarge(Exception):
    """A frame announces more bytes than were agreed."""


class GoAway(NamedTuple):
    """The sender takes no new streams, and ignores those above `last_stream_id`."""

    last_stream_id: int
    error_code: int


class IncomingFrames:
    """One direction of one connection. A client (`client=True`) gets `GoAway`s; a server gets all bytes unchanged."""

    def __init__(self, *, client: bool) -> None:
        self._client = client
        self._head = b""  # the incomplete head of the next frame
        self._left = 0 if client else PREFACE  # bytes of the current frame that have not arrived yet
        self._goodbye: bytes | None = None  # the content of a GOAWAY that is still arriving

    def feed(self, data: bytes, largest: int) -> Iterator[bytes | GoAway]:
        """What `data` consists of, in order. Raises FrameTooLarge at the head of a frame longer than `largest`."""
        data, self._head = self._head + data, b""
        start = at = 0  # the bytes for h2 begin at `start`
        while at < len(data):
            if not self._left:
                if len(data) - at < _HEAD:
                    self._head, data = data[at:], data[:at]
                    break
                if self._begin(data[at : at + _HEAD], largest):
                    if start < at:
                        yield data[start:at]
                    start = at + _HEAD
                at += _HEAD
            end = min(at + self._left, len(data))
            self._left -= end - at
            if self._goodbye is not None:
                self._goodbye += data[at:end]
                start = end
                if not self._left:
                    yield self._gone()
            at = end
        if start < len(data):
            yield data[start:]

    def _begin(self, head: bytes, largest: int) -> bool:
        """Begins a frame. Returns whether it is a GOAWAY; h2 refuses a malformed one."""
        self._left = int.from_bytes(head[:3], "big")
        if self._left > largest:
            raise FrameTooLarge
        if self._client and head[3] == _GOAWAY and self._left >= 8 and not any(head[5:]):
            self._goodbye = b""
        return self._goodbye is not None

    def _gone(self) -> GoAway:
        content, self._goodbye = self._goodbye or b"", None
        return GoAway(int.from_bytes(content[:4], "big") & 0x7FFFFFFF, int.from_bytes(content[4:8], "big"))
