"""Looking into bodies as they pass: decompress, find, replace, hold back. In bounded memory.

These look for words that the tenant knows: placeholders. A word can lie across two pieces, so `Replacer` and `Finder`
keep back the end of a piece while it could be the beginning of one, and only then. Values are looked for elsewhere
(`spellings.py`, `scrubbing.py`), where nothing may depend on such a likeness.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

from sandbox.errors import Denied
from sandbox.network.http.body_memory import Allowance
from sandbox.network.http.message import EMPTY, Body, Whole

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping

    from sandbox.network.http.message import Headers, Pair

    Trailers = tuple[Pair, ...]

# A compressed body may grow to this, plus a hundredfold of what came: a bomb must not cost the gate its time.
GROWTH_FREE, GROWTH_RATIO = 16 * 2**20, 100
SLICE = 256 * 1024


def beginning(data: bytes, words: Iterable[bytes]) -> int:
    """How many bytes at the end of `data` could be the beginning of one of `words`."""
    longest = 0
    for word in words:
        # From the longest possible start on: the first that fits is the longest for this word.
        at = max(0, len(data) - len(word) + 1)
        while (at := data.find(word[:1], at)) >= 0:
            if len(data) - at <= longest:
                break
            if word.startswith(data[at:]):
                longest = len(data) - at
                break
            at += 1
    return longest


class Replacer:
    """Puts values where placeholders stand in a stream of bytes, wherever the pieces are cut.

    What it holds back depends on what the tenant sent and on placeholders, both of which the tenant knows.
    """

    def __init__(self, words: Mapping[bytes, bytes]) -> None:
        self._words = dict(words)
        # The longest first: a word that begins another must not hide it.
        ordered = sorted(self._words, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(re.escape(word) for word in ordered))
        self._kept = b""  # the possible beginning of a word

    def feed(self, data: bytes) -> bytes:
        """What can be passed on now."""
        data = self._kept + data
        out, end = [], 0
        # Searching for each word is many times faster than the pattern, and mostly there is none.
        matches = self._pattern.finditer(data) if any(word in data for word in self._words) else ()
        for match in matches:
            out += [data[end : match.start()], self._words[match.group()]]
            end = match.end()
        rest = data[end:]
        ready = len(rest) - beginning(rest, self._words)
        self._kept = rest[ready:]
        return b"".join((*out, rest[:ready]))

    def flush(self) -> bytes:
        """What was kept back, at the end."""
        rest, self._kept = self._kept, b""
        return rest


# %41, \u0041 and \/ are how an address and JSON write what they do not want to write plainly.
_ESCAPED = re.compile(rb"[%\\](?:(?<=%)([0-9A-Fa-f]{2})|(?<=\\)u00([0-9A-Fa-f]{2})|(?<=\\)([/\"\\]))")
_PARTIAL_ESCAPE = re.compile(rb"(?:%[0-9A-Fa-f]?|\\(?:u(?:0(?:0[0-9A-Fa-f]?)?)?)?)\Z")


def unescaped(data: bytes) -> bytes:
    """`data` with percent- and JSON-escapes of single bytes resolved."""
    if b"%" not in data and b"\\" not in data:
        return data
    return _ESCAPED.sub(lambda match: match[3] or bytes((int(match[1] or match[2], 16),)), data)


class Finder:
    """Says when one of some words has passed, plainly or escaped, wherever the pieces are cut."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self._words = tuple(words)
        self._plain_tail = self._escaped_tail = self._half = b""

    def feed(self, data: bytes) -> bytes | None:
        """The word that has now been seen, if any."""
        plain = self._plain_tail + data
        for word in self._words:
            if word in plain:
                return word
        self._plain_tail = self._tail(plain)
        data, self._half = self._half + data, b""
        half = _PARTIAL_ESCAPE.search(data, max(0, len(data) - 5))
        if half:
            data, self._half = data[: half.start()], data[half.start() :]
        resolved = self._escaped_tail + unescaped(data)
        for word in self._words:
            if word in resolved:
                return word
        self._escaped_tail = self._tail(resolved)
        return None

    def pending(self) -> int:
        """How many bytes, at most, of what was fed last may belong to a word not yet complete. A likeness of
        less than eight bytes is not counted: it tells nobody anything, and would stall streams by chance."""
        longest = max(len(self._plain_tail), len(self._escaped_tail))
        return 6 * longest + len(self._half) if longest >= 8 else 0

    def _tail(self, data: bytes) -> bytes:
        keep = beginning(data, self._words)
        return data[-keep:] if keep else b""


class Decompressor:
    """gzip or deflate, in slices, with a bound on the growth. Raises Denied on a bomb and on garbage."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._inflate = zlib.decompressobj(31) if encoding == "gzip" else None
        self._start = b""
        self._came = self._gave = 0

    def feed(self, data: bytes) -> bytes:
        """What `data` holds."""
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
                    raise _garbled("more data follows its end")
                self._inflate = zlib.decompressobj(31)
            try:
                piece = self._inflate.decompress(data, SLICE)
            except zlib.error as problem:
                raise _garbled(f"it is not {self._encoding} ({problem})") from None
            self._gave += len(piece)
            if self._gave > GROWTH_FREE + GROWTH_RATIO * self._came:
                raise Denied("compressed-body", "the compressed body grows out of all proportion")
            out.append(piece)
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
        return b"".join(out)

    def flush(self) -> bytes:
        """The end. Raises Denied when the body was cut short."""
        if self._came and (self._inflate is None or not self._inflate.eof):
            raise _garbled("it is cut short")
        return self._inflate.flush() if self._inflate is not None else b""


def _garbled(why: str) -> Denied:
    return Denied("content-encoding", "the compressed body cannot be looked into: {why}", why=why)


class Changed(Body):
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


def replaced(body: Body, words: Mapping[bytes, bytes]) -> Body:
    """`body` with `words` replaced."""
    if body is EMPTY or not words:
        return body
    replacer = Replacer(words)
    if isinstance(body, Whole):
        return Whole(replacer.feed(body.data) + replacer.flush(), body.trailers)
    return Changed(body, replacer.feed, replacer.flush)


class Guarded(Body):
    """A body that never gives a forbidden word away: it raises Denied instead.

    `inspect` reads ahead before anything is sent, so that a refusal is whole: to the end of the body, or to
    `READ_AHEAD` bytes (less when the sandbox's allowance is spent), or, when the length is not declared, until the
    sender pauses for `PATIENCE` seconds (it may be waiting for an answer). What comes later is looked at before it
    is passed on: the connection is cut before the word has left.
    """

    READ_AHEAD = 2**20
    PATIENCE = 1.0

    def __init__(
        self,
        source: Body,
        words: Iterable[bytes],
        inflate: Decompressor | None,
        refusal: Callable[[bytes], Denied],
        allowance: Allowance | None = None,
        look: Callable[[bytes], None] | None = None,
    ) -> None:
        self._source, self._inflate, self._refusal = source, inflate, refusal
        self._finder = Finder(words)
        self._look = look  # raises Denied for what else must not leave
        self._held = bytearray()
        self._allowance = allowance or Allowance()
        self._kept = self._allowance.keep(0)
        self._reading: asyncio.Task[bytes] | None = None
        self._ended = False
        self.length = source.length

    async def inspect(self) -> None:
        """Reads ahead. Raises Denied, also for a body that is not the compression it says."""
        import asyncio  # not above: this module is loaded when a sandbox with secrets starts

        declared = self.length is not None
        while not self._ended and len(self._held) < self.READ_AHEAD and not self._allowance.spent:
            if declared:
                await self._more()
                continue
            self._reading = self._reading or asyncio.ensure_future(self._source.read())
            try:
                done, _ = await asyncio.wait({self._reading}, timeout=self.PATIENCE)
            except asyncio.CancelledError:
                self._reading.cancel()
                raise
            if not done:
                return
            await self._more()

    async def read(self) -> bytes:
        while True:
            ready = len(self._held) if self._ended else len(self._held) - self._finder.pending()
            if ready > 0:
                piece = bytes(self._held[:ready])
                del self._held[:ready]
                self._kept.add(-ready)
                return piece
            if self._ended:
                return b""
            await self._more()

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._source.close()

    async def _more(self) -> None:
        reading, self._reading = self._reading, None
        piece = await (reading or self._source.read())
        if piece:
            self._held += piece
            self._kept.add(len(piece))
            content = self._inflate.feed(piece) if self._inflate else piece
        else:
            self._ended = True
            self.trailers = self._source.trailers
            trailers = b"".join(b"\n%s: %s" % pair for pair in self.trailers)
            content = (self._inflate.flush() if self._inflate else b"") + trailers
        try:
            if self._look is not None:
                self._look(content)
            seen = self._finder.feed(content)
            if seen is not None:
                raise self._refusal(seen)
        except Denied:
            self._held.clear()
            raise


def content_encodings(headers: Headers) -> list[str]:
    """The codings of a body, in the order they were applied; `identity` and `aws-chunked` leave the bytes
    readable."""
    names = [name.strip().lower() for value in headers.get_all("Content-Encoding") for name in value.split(",")]
    return [name for name in names if name not in ("", "identity", "aws-chunked")]


def decompressor(headers: Headers) -> Decompressor | None:
    """What makes a body readable; None when it is. Denied for a coding we cannot look into."""
    encodings = content_encodings(headers)
    if not encodings:
        return None
    if len(encodings) > 1 or encodings[0] not in ("gzip", "x-gzip", "deflate"):
        raise Denied(
            "content-encoding",
            "a body in {encodings!r} cannot be looked into; use gzip",
            encodings=", ".join(encodings)[:60],
        )
    return Decompressor(encodings[0].removeprefix("x-"))


def decoded(headers: Headers, body: Body) -> Body:
    """`body` as it is without compression; the headers are changed to say so."""
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
