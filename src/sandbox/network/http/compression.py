"""Decompressing bodies as they pass, in bounded memory, so that their content can be searched."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from sandbox.errors import Denied, Message
from sandbox.network.http.body import EMPTY, Body, Changed, Whole

if TYPE_CHECKING:
    from sandbox.network.http.headers import Headers

# A body may expand to GROWTH_FREE plus GROWTH_RATIO times its compressed size: a bomb must not take the gate's time.
GROWTH_FREE, GROWTH_RATIO = 16 * 2**20, 100
SLICE = 256 * 1024
READABLE = ("gzip", "x-gzip", "deflate")


class Decompressor:
    """gzip or deflate, in slices, with a bound on the growth. Raises Denied on a bomb and on garbage."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._inflate = zlib.decompressobj(31) if encoding == "gzip" else None
        self._start = b""
        self._came = self._gave = 0

    def feed(self, data: bytes) -> bytes:
        """The decompressed content of `data`."""
        self._came += len(data)
        if self._inflate is None:
            # "deflate" means zlib's format; some send it without zlib's two bytes at the start.
            data = self._start = self._start + data
            if len(data) < 2:
                return b""
            with_header = data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._inflate = zlib.decompressobj(15 if with_header else -15)
        out: list[bytes] = []
        while data:
            if self._inflate.eof:  # a further gzip member
                if self._encoding != "gzip":
                    raise _garbled(Message("more data follows its end"))
                self._inflate = zlib.decompressobj(31)
            try:
                piece = self._inflate.decompress(data, SLICE)
            except zlib.error as problem:
                raise _garbled(
                    Message("it is not {encoding} ({problem})", encoding=self._encoding, problem=problem)
                ) from None
            self._gave += len(piece)
            if self._gave > GROWTH_FREE + GROWTH_RATIO * self._came:
                raise Denied("compressed-body", "the compressed body expands to an unreasonable size")
            out.append(piece)
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
        return b"".join(out)

    def flush(self) -> bytes:
        """The end. Raises Denied when the body was cut short."""
        if self._came and (self._inflate is None or not self._inflate.eof):
            raise _garbled(Message("it is cut short"))
        return self._inflate.flush() if self._inflate is not None else b""


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
    if isinstance(body, Whole):
        return Whole(inflate.feed(body.data) + inflate.flush(), body.trailers)
    return Changed(body, inflate.feed, inflate.flush)
