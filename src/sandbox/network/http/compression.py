"""Decompressing bodies as they pass, in bounded memory, so that their content can be searched."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from sandbox.errors import Denied, Message
from sandbox.network.http.body import EMPTY, Body, Whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.network.http.headers import Headers

# A body may expand to GROWTH_FREE plus GROWTH_RATIO times its compressed size: a bomb must not take the gate's time.
GROWTH_FREE, GROWTH_RATIO = 16 * 2**20, 100
SLICE = 64 * 1024  # what is decompressed at a time: a few bytes may hold megabytes
MAX_WHOLE = 2**20  # a body that was whole stays so up to this size; a larger one is decompressed as it is read
READABLE = ("gzip", "x-gzip", "deflate")


class Decompressor:
    """gzip or deflate, in slices, with a bound on the growth. Raises Denied on a bomb and on garbage."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        self._inflate = zlib.decompressobj(31) if encoding == "gzip" else None
        self._start = b""
        self._came = self._gave = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The decompressed content of `data`, in pieces of at most SLICE bytes. Take all of it before the next call."""
        self._came += len(data)
        if self._inflate is None:
            # "deflate" means zlib's format; some send it without zlib's two bytes at the start.
            data = self._start = self._start + data
            if len(data) < 2:
                return
            with_header = data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._inflate = zlib.decompressobj(15 if with_header else -15)
        full = False
        while data or full:  # a full slice may leave more within zlib
            if data and self._inflate.eof:  # a further gzip member
                if self.encoding != "gzip":
                    raise _garbled(Message("more data follows its end"))
                self._inflate = zlib.decompressobj(31)
            try:
                piece = self._inflate.decompress(data, SLICE)
            except zlib.error as problem:
                raise _garbled(
                    Message("it is not {encoding} ({problem})", encoding=self.encoding, problem=problem)
                ) from None
            self._gave += len(piece)
            if self._gave > GROWTH_FREE + GROWTH_RATIO * self._came:
                raise Denied("compressed-body", "the compressed body expands to an unreasonable size")
            full = len(piece) == SLICE and not self._inflate.eof
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece

    def finish(self) -> None:
        """The end. Raises Denied when the body was cut short."""
        if self._came and (self._inflate is None or not self._inflate.eof):
            raise _garbled(Message("it is cut short"))


class Inflated(Body):
    """A body without its compression."""

    length: int | None = None

    def __init__(self, source: Body, inflate: Decompressor) -> None:
        self._source, self._inflate = source, inflate
        self._pieces: Iterator[bytes] = iter(())
        self._ended = False

    async def read(self) -> bytes:
        while not self._ended:
            if piece := next(self._pieces, b""):
                return piece
            if data := await self._source.read():
                self._pieces = self._inflate.feed(data)
                continue
            self._ended = True
            self._inflate.finish()
            self.trailers = self._source.trailers
        return b""

    def close(self) -> None:
        self._source.close()


def _garbled(why: str) -> Denied:
    return Denied("content-encoding", "the compressed body cannot be inspected: {why}", why=why)


def content_encodings(headers: Headers) -> list[str]:
    """The codings of a body, in the order they were applied; `identity` and `aws-chunked` leave the bytes
    readable."""
    names = [name.strip().lower() for value in headers.get_all("Content-Encoding") for name in value.split(",")]
    return [name for name in names if name not in ("", "identity", "aws-chunked")]


def decompressor(headers: Headers) -> Decompressor | None:
    """A decompressor for the body; None when it is not compressed. Raises Denied for an unsupported coding."""
    encodings = content_encodings(headers)
    if not encodings:
        return None
    if len(encodings) > 1 or encodings[0] not in READABLE:
        raise Denied(
            "content-encoding",
            "a body with Content-Encoding {encodings!r} cannot be inspected; use gzip",
            encodings=", ".join(encodings)[:60],
        )
    return Decompressor(encodings[0].removeprefix("x-"))


def decoded(headers: Headers, body: Body) -> Body:
    """`body` without compression. Changes the headers accordingly."""
    if body is EMPTY:
        return body
    inflate = decompressor(headers)
    if inflate is None:
        return body
    headers.remove("Content-Encoding")
    headers.remove("Content-Length")
    if isinstance(body, Whole) and (small := _small(body, Decompressor(inflate.encoding))) is not None:
        return small
    return Inflated(body, inflate)


def _small(body: Whole, inflate: Decompressor) -> Whole | None:
    """`body` without its compression, still whole; None when that is too large."""
    data = bytearray()
    for piece in inflate.feed(body.data):
        data += piece
        if len(data) > MAX_WHOLE:
            return None
    inflate.finish()
    return Whole(bytes(data), body.trailers)
