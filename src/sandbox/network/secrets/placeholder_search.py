"""Finding and replacing placeholders in a stream, wherever its pieces are cut.

A placeholder can lie across two pieces, so `Replacer` and `Finder` hold back the end of a piece only while it could be
the beginning of one. The tenant knows its placeholders, so it learns nothing from that. Secret *values* are
found elsewhere (`spellings.py`, `scrubbing.py`), where nothing may depend on such a partial match.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandbox.network.http.body import EMPTY, Body, ChangedBody, Whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def beginning(data: bytes, words: Iterable[bytes]) -> int:
    """How many bytes at the end of `data` could begin one of `words`."""
    longest = 0
    for word in words:
        # Starts with the longest possible match, so the first one found is the longest for this word.
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
    """Replaces placeholders by values in a stream of bytes, wherever the pieces are cut. `inserted` is called with each
    placeholder that was there.

    What it holds back depends on what the tenant sent and on placeholders, both of which the tenant knows.
    """

    def __init__(self, words: Mapping[bytes, bytes], inserted: Callable[[bytes], None] = lambda word: None) -> None:
        self._words = dict(words)
        self._inserted = inserted
        # Longest first: a word that is the beginning of another must not hide it.
        ordered = sorted(self._words, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(re.escape(word) for word in ordered))
        self._kept = b""  # the possible beginning of a word

    def feed(self, data: bytes) -> bytes:
        """What can be passed on now."""
        data = self._kept + data
        out, end = [], 0
        # Searching for each word is many times faster than the pattern, and usually there is none.
        matches = self._pattern.finditer(data) if any(word in data for word in self._words) else ()
        for match in matches:
            out += [data[end : match.start()], self._words[match.group()]]
            self._inserted(match.group())
            end = match.end()
        rest = data[end:]
        ready = len(rest) - beginning(rest, self._words)
        self._kept = rest[ready:]
        return b"".join((*out, rest[:ready]))

    def flush(self) -> bytes:
        """The bytes that were held back, at the end."""
        rest, self._kept = self._kept, b""
        return rest


# Escapes in URLs and JSON: %41, \u0041 and \/.
_ESCAPED = re.compile(rb"[%\\](?:(?<=%)([0-9A-Fa-f]{2})|(?<=\\)u00([0-9A-Fa-f]{2})|(?<=\\)([/\"\\]))")
_PARTIAL_ESCAPE = re.compile(rb"(?:%[0-9A-Fa-f]?|\\(?:u(?:0(?:0[0-9A-Fa-f]?)?)?)?)\Z")


def unescaped(data: bytes) -> bytes:
    """`data` with percent- and JSON-escapes of single bytes resolved."""
    if b"%" not in data and b"\\" not in data:
        return data
    return _ESCAPED.sub(lambda match: match[3] or bytes((int(match[1] or match[2], 16),)), data)


def word_in(data: bytes, words: Iterable[bytes]) -> bytes | None:
    """The first of `words` that is in `data`, plainly or escaped once or twice."""
    once = unescaped(data)
    views = {data, once, unescaped(once)}
    return next((word for word in words for view in views if word in view), None)


class Finder:
    """Finds words in a stream, plain or escaped, wherever the pieces are cut."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self._words = tuple(words)
        self._plain_tail = self._escaped_tail = self._half = b""

    def feed(self, data: bytes) -> bytes | None:
        """The first word that is now complete, if any."""
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
        """How many bytes at the end may belong to an incomplete word. A match of fewer than eight bytes does not count:
        it gives nothing away, and would stall streams by chance."""
        longest = max(len(self._plain_tail), len(self._escaped_tail))
        return 6 * longest + len(self._half) if longest >= 8 else 0

    def _tail(self, data: bytes) -> bytes:
        keep = beginning(data, self._words)
        return data[-keep:] if keep else b""


def replaced(body: Body, words: Mapping[bytes, bytes], inserted: Callable[[bytes], None]) -> Body:
    """`body` with `words` replaced; see `Replacer`."""
    if body is EMPTY or not words:
        return body
    replacer = Replacer(words, inserted)
    if isinstance(body, Whole):
        return Whole(replacer.feed(body.data) + replacer.flush(), body.trailers)
    return ChangedBody(body, replacer.feed, replacer.flush)
