"""Turning values back into placeholders in a stream, so that nothing about a value can be learned from when its pieces
come, or how they are cut.

A value may lie across two pieces, so the end of what has come is held back. **How much is held back never depends on
what it is compared with**, only on where the stream can be cut for anybody's values:

- behind a control character, a line's end above all, or a byte beyond ASCII: no value holds one, in no spelling;
- behind a message, where the content has messages of its own (gRPC, Amazon's event streams);
- at the end of the content;
- and in a line that does not end, as far before its end as the longest value is long.

Held-back bytes are never released because time has passed: half a value would go with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from sandbox.errors import Denied
from sandbox.network.http.body import EMPTY, Body, Changed, Whole
from sandbox.network.secrets.spellings import instead

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.network.http.headers import Headers, Pair
    from sandbox.network.http.message import Request
    from sandbox.network.secrets.spellings import Values

_PRINTABLE = bytes(range(0x20, 0x7F))
_BLOCK = 4096


class Scrubber:
    """One stream. `values` is asked anew for every piece: a value may be given to the sandbox meanwhile."""

    def __init__(self, values: Values, messages: Messages | None = None, *, same_length: bool = False) -> None:
        self._values, self._messages, self._same_length = values, messages, same_length
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on now."""
        self._held += data
        cut = self._safe_end()
        longest = self._values.longest
        if len(self._held) - cut <= longest + max(longest, _BLOCK):
            return self._release(cut, cut)
        cut = len(self._held) - longest
        while cut and self._held[cut] & 0xC0 == 0x80 and self._held[cut - 1] & 0x80:
            cut -= 1  # never within a letter
        return self._release(cut, len(self._held))

    def _safe_end(self) -> int:
        """The end of what no value can lie across."""
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
        """All before `cut`, and the rest of a value that begins there."""
        if not cut:
            return b""
        out, end = [], 0
        for one in self._values.find(self._held[:looked_at]):
            if one.start >= cut:
                break
            out += [self._held[end : one.start], instead(one, self._same_length)]
            end = one.end
        out.append(self._held[end:cut])
        end = max(end, cut)
        self._held = self._held[end:]
        if self._messages is not None:
            self._messages.released(end)
        return b"".join(out)


class NotMessages(Exception):
    """What claims to be made of messages is not."""


class Messages:
    """Where the messages of a content end, that say in their first `head` bytes how long they are.

    Whoever asks for an answer may have chosen its type and its first bytes as well (a file stored earlier). An end that
    is believed for nothing but a number would then be a way to have a value cut in two, each half of it unknown to us.
    """

    def __init__(self, head: int, size: Callable[[bytes], int]) -> None:
        self._head, self._size = head, size
        self._start, self._end = 0, -1  # of the message under way; its end when that is known

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
        """Raises NotMessages when the message under way is none."""

    def released(self, size: int) -> None:
        """So much of what was held has gone."""
        self._start -= size
        if self._end >= 0:
            self._end -= size


class AmazonMessages(Messages):
    """Amazon's event stream: sums at the end of each head (12 bytes) and each message show that they are what they say.
    Nobody who does not know a value can make a message that ends within it."""

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
            raise NotMessages  # a part of it has gone unsummed, within a value
        self._sum = crc32(held[self._summed : content], self._sum)
        self._summed = max(self._summed, content)
        if self._end <= len(held) and self._sum != int.from_bytes(held[self._end - 4 : self._end], "big"):
            raise NotMessages

    def released(self, size: int) -> None:
        super().released(size)
        self._summed -= size


def messages_of(headers: Headers, request: Request, *, readable: bool = True) -> Messages | None:
    """How a content of this type is divided, that answers `request`; None for lines and everything else. `readable`:
    its messages must be."""
    kind = headers.media_type
    for family in ("application/grpc", "application/connect+"):
        # A call is always a POST of the same family; a server that answers those frames its messages itself.
        if kind.startswith(family) and request.method == "POST" and request.headers.media_type.startswith(family):
            return Messages(5, _readable_grpc if readable else _grpc)
    return AmazonMessages() if kind == "application/vnd.amazon.eventstream" else None


def _readable_grpc(head: bytes) -> int:
    if head[0] & 1:
        raise Denied("content-encoding", "a compressed gRPC message cannot be inspected")
    return _grpc(head)


def _grpc(head: bytes) -> int:
    return 5 + int.from_bytes(head[1:], "big")


def scrubbed_pairs(pairs: list[Pair], values: Values) -> list[Pair]:
    """Header fields without values. A field whose *name* holds one is left out: names have no case, and no
    placeholder would be understood there."""
    return [(name, values.scrubbed(value)) for name, value in pairs if not values.in_name(name)]


def scrubbed_body(
    body: Body, values: Values, headers: Headers, request: Request, *, same_length: bool, readable: bool
) -> Body:
    """`body`, which answers `request`, without values, in trailers neither. Raises Denied as it is read when it must be
    `readable` and is not."""
    if body is EMPTY:
        return body
    messages = messages_of(headers, request, readable=readable)
    # A message says how long it is, and so does a length that was promised.
    scrubber = Scrubber(values, messages, same_length=same_length or messages is not None)

    def trailers(given: tuple[Pair, ...]) -> tuple[Pair, ...]:
        return tuple(scrubbed_pairs(list(given), values))

    if isinstance(body, Whole):
        return Whole(scrubber.feed(body.data) + scrubber.flush(), trailers(body.trailers))
    changed = Changed(body, scrubber.feed, scrubber.flush, trailers)
    changed.length = body.length if same_length else None
    return changed
