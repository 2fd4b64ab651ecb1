"""A message's content as a stream: a piece is read from one side when the other has room for it.

A body is buffered only when a hook asks for it, and then up to `MAX_BUFFERED` bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.errors import Denied
from sandbox.network.http.body_memory import Allowance, CountedBytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.network.http.headers import Pair

    Trailers = tuple[Pair, ...]

MAX_BUFFERED = 16 * 1024 * 1024


class Body:
    """A message's content, piece by piece. This one is empty; `length` is None when not known beforehand."""

    length: int | None = 0
    trailers: tuple[Pair, ...] = ()  # known when `read` has returned b""

    async def read(self) -> bytes:
        """The next piece, b"" at the end. Raises OSError when the sender went away before that."""
        return b""

    def close(self) -> None:
        """Nobody will read the rest. Idempotent."""


class Whole(Body):
    """Content that is already here."""

    def __init__(self, data: bytes, trailers: tuple[Pair, ...] = (), kept: CountedBytes | None = None) -> None:
        self.data = data
        self.length = len(data)
        self.trailers = trailers
        self._given = False
        self._kept = kept  # counts against the sandbox's allowance while this object exists

    async def read(self) -> bytes:
        if self._given:
            return b""
        self._given = True
        return self.data


EMPTY = Body()


class ChangedBody(Body):
    """A body that passes through a function on its way."""

    length: int | None = None

    def __init__(
        self,
        source: Body,
        feed: Callable[[bytes], bytes],
        flush: Callable[[], bytes],
        trailers: Callable[[Trailers], Trailers] | None = None,
    ) -> None:
        self._source, self._feed, self._flush = source, feed, flush
        self._trailers = trailers or (lambda given: given)
        self._ended = False

    async def read(self) -> bytes:
        while not self._ended:
            piece = await self._source.read()
            if not piece:
                self._ended = True
                self.trailers = self._trailers(self._source.trailers)
                return self._flush()
            if changed := self._feed(piece):
                return changed
        return b""

    def close(self) -> None:
        self._source.close()


async def whole(body: Body, allowance: Allowance | None = None) -> Whole:
    """All of `body`, or Denied when there is more than MAX_BUFFERED, or more than the sandbox's allowance."""
    if isinstance(body, Whole):
        return body
    kept = (allowance or Allowance()).keep(0)
    data = bytearray()  # not a list: pieces may be of one byte each
    while piece := await body.read():
        kept.add(len(piece))
        if kept.size > MAX_BUFFERED:
            raise Denied(
                "body-too-large",
                "a hook reads the body, which is larger than {max_buffered} bytes",
                max_buffered=MAX_BUFFERED,
            )
        if allowance is not None and allowance.spent:
            raise Denied("body-too-large", "too many bodies are being read by hooks at the same time")
        data += piece
    return Whole(bytes(data), body.trailers, kept)
