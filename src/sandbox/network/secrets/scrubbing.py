"""Replaces secret values in a stream by placeholders, without revealing anything by timing or by where it is split.

A value may be split between two pieces, so the end of the data received so far is held back. **How much is held back
never depends on the values**, only on where the stream can be split whatever the values are:

- after a control character (usually a line end) or a non-ASCII byte: no value contains one, in any spelling;
- after a message, where the content has its own framing (gRPC, Amazon's event streams);
- at the end of the content;
- in a line that does not end: before its last bytes, as many as the longest value can take.

Held-back bytes are never released because time has passed: they could contain half a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from sandbox.errors import Denied
from sandbox.network.http.body import EMPTY, Body, ChangedBody, Whole
from sandbox.network.secrets.spellings import instead

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.network.http.headers import Headers, Pair
    from sandbox.network.http.message import Request
    from sandbox.network.secrets.spellings import Found, Values

_PRINTABLE = bytes(range(0x20, 0x7F))
_BLOCK = 4096


class Scrubber:
    """One stream. `values` is consulted for every piece, because the sandbox may get a new secret meanwhile. `found` is
    called with the name of each secret that was replaced."""

    def __init__(
        self,
        values: Values,
        messages: Messages | None = None,
        *,
        same_length: bool = False,
        found: Found = lambda name: None,
    ) -> None:
        self._values, self._messages, self._same_length, self._found = values, messages, same_length, found
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on now."""
        self._held += data
        cut = self._safe_end()
        longest = self._values.longest
        if len(self._held) - cut <= longest + max(longest, _BLOCK):
            # Lines are split where no value can be. Where messages end is what the sender says: we look beyond.
            return self._release(cut, cut if self._messages is None else len(self._held))
        cut = len(self._held) - longest
        while cut and self._held[cut] & 0xC0 == 0x80 and self._held[cut - 1] & 0x80:
            cut -= 1  # never within a character
        return self._release(cut, len(self._held))

    def _safe_end(self) -> int:
        """The last position at which the data can be split."""
        if self._messages is not None:
            try:
                return self._messages.end(self._held)
            except NotMessages:
                self._messages = None
        return len(self._held.rstrip(_PRINTABLE))

    def flush(self) -> bytes:
        """The rest, at the end."""
        return self._release(len(self._held), len(self._held))

    def _release(self, cut: int, looked_at: int) -> bytes:
        """Everything before `cut`, and the rest of a value that begins before it."""
        if not cut:
            return b""
        out, end = [], 0
        for one in self._values.find(self._held[:looked_at]):
            if one.start >= cut:
                break
            self._found(one.name)
            out += [self._held[end : one.start], instead(one, self._same_length)]
            end = one.end
        out.append(self._held[end:cut])
        end = max(end, cut)
        self._held = self._held[end:]
        if end > cut:
            self._messages = None  # a value lay across: those were no messages
        if self._messages is not None:
            self._messages.released(end)
        return b"".join(out)


class NotMessages(Exception):
    """The content does not have the framing that its type promises."""


class Messages:
    """Finds the ends of messages that state their length in their first `head` bytes.

    The tenant that requests an answer may also have chosen its type and its first bytes (a file stored earlier). If we
    trusted a length alone, it could be used to split a value in two, and we would recognise neither half.
    """

    def __init__(self, head: int, size: Callable[[bytes], int]) -> None:
        self._head, self._size = head, size
        self._start, self._end = 0, -1  # of the current message; -1: its end is not known yet

    def end(self, held: bytes) -> int:
        """The end of the last message that is complete in `held`. Raises Denied for one that cannot be read, and
        NotMessages."""
        while True:
            if self._end < 0:
                if len(held) - self._start < self._head:
                    break
                self._end = self._start + self._size(held[self._start : self._start + self._head])
            self._look(held)
            if self._end > len(held):
                break
            self._start, self._end = self._end, -1
        return max(self._start, 0)

    def _look(self, held: bytes) -> None:
        """Raises NotMessages when the current message is not valid."""

    def released(self, size: int) -> None:
        """Notes that the first `size` bytes have been passed on."""
        self._start -= size
        if self._end >= 0:
            self._end -= size


class GrpcMessages(Messages):
    """gRPC and Connect: a byte of flags, and a length, which nothing proves. An echo of the tenant's own bytes can have
    a "message" that ends within a value. So a message of JSON (`text`) must end as JSON does, and what follows one
    must begin like one: with a byte that no value holds. It is looked at if it has arrived by then."""

    def __init__(self, *, readable: bool, text: bool) -> None:
        super().__init__(5, self._sized)
        self._readable, self._text = readable, text
        self._passed = False  # whether there has been a message

    def _sized(self, head: bytes) -> int:
        if head[0] & ~0x83:
            raise self._broken()
        if self._readable and head[0] & 1:
            raise Denied("content-encoding", "a compressed gRPC message cannot be inspected")
        return 5 + int.from_bytes(head[1:], "big")

    def _look(self, held: bytes) -> None:
        if self._end > len(held):
            return
        if self._text and self._end - self._start > 5 and held[self._end - 1] not in b"}]":
            raise self._broken()
        if self._end < len(held) and held[self._end] & ~0x83:
            raise self._broken()
        self._passed = True

    def _broken(self) -> Exception:
        if not self._passed:
            return NotMessages()
        return Denied("content-encoding", "the answer is not made of gRPC messages, so it cannot be inspected")


class AmazonMessages(Messages):
    """Amazon's event stream. Each head (12 bytes) and each message ends with a checksum, so nobody can make a message
    that ends within a value without knowing the value."""

    def __init__(self) -> None:
        super().__init__(12, self._sized)
        self._sum, self._summed = 0, 0

    def _sized(self, head: bytes) -> int:
        size = int.from_bytes(head[:4], "big")
        if size < 16 or crc32(head[:8]) != int.from_bytes(head[8:], "big"):
            raise NotMessages
        self._sum, self._summed = 0, self._start
        return size

    def _look(self, held: bytes) -> None:
        content = min(self._end - 4, len(held))
        if self._summed < 0 or content < 0:
            raise NotMessages  # part of it was passed on before it could be checked
        self._sum = crc32(held[self._summed : content], self._sum)
        self._summed = max(self._summed, content)
        if self._end <= len(held) and self._sum != int.from_bytes(held[self._end - 4 : self._end], "big"):
            raise NotMessages

    def released(self, size: int) -> None:
        super().released(size)
        self._summed -= size


def messages_of(headers: Headers, request: Request, *, readable: bool = True) -> Messages | None:
    """The framing of a response to `request`, by its type; None for lines and everything else. With `readable`, its
    messages must be readable."""
    kind = headers.media_type
    for family in ("application/grpc", "application/connect+"):
        # A call is always a POST with a type of the same family, and such a server writes the framing itself.
        if kind.startswith(family) and request.method == "POST" and request.headers.media_type.startswith(family):
            return GrpcMessages(readable=readable, text=kind.endswith("json"))
    return AmazonMessages() if kind == "application/vnd.amazon.eventstream" else None


def scrubbed_pairs(pairs: list[Pair], values: Values, found: Found) -> list[Pair]:
    """Header fields without secret values. A field whose *name* contains one is left out: names do not keep their case,
    and a placeholder there would mean nothing. So is one that contains a value with spaces in it: a server may have
    folded the line, which is a space to us."""
    kept = [(name, values.scrubbed(value, found=found)) for name, value in pairs if not values.in_name(name)]
    return [(name, value) for name, value in kept if not _folded(value, values)]


def _folded(field: bytes, values: Values) -> bool:
    closed = field.translate(None, b" \t")
    return closed != field and bool(values.find(closed))


def scrubbed_body(
    body: Body, values: Values, headers: Headers, request: Request, *, same_length: bool, readable: bool
) -> Body:
    """`body`, a response to `request`, without values, trailers included. Reading it raises Denied when it must be
    `readable` and is not."""
    if body is EMPTY:
        return body
    messages = messages_of(headers, request, readable=readable)
    # A message states its length, and so does Content-Length.
    found = request.uses.taken_out
    scrubber = Scrubber(values, messages, same_length=same_length or messages is not None, found=found)

    def trailers(given: tuple[Pair, ...]) -> tuple[Pair, ...]:
        return tuple(scrubbed_pairs(list(given), values, found))

    if isinstance(body, Whole):
        return Whole(scrubber.feed(body.data) + scrubber.flush(), trailers(body.trailers))
    changed = ChangedBody(body, scrubber.feed, scrubber.flush, trailers)
    changed.length = body.length if same_length else None
    return changed
