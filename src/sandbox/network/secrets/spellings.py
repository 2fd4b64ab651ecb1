"""Finds a secret's value in bytes, in all the ways in which programs commonly write text.

What counts as the value is an equivalence, not a list of spellings: each of its characters may stand plainly or escaped
(percent, JSON, C, HTML; escaped again up to four times) and in either case, independently of its neighbours; or the
whole is in hexadecimal, or somewhere within base64 (either alphabet, any of the three alignments, padded or not).

The search has two steps. The first is fast and may only err by finding too much: it resolves escapes and looks for the
end of each value. The second is exact, and runs only where the first has found something. It goes from character to
character with one small pattern for each: a single pattern for a value of some kilobytes takes seconds to compile.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from sandbox.network.secrets.escapes import END_OF_DECIMAL, END_OF_HEX, NAMED, ROUNDS, SIGNS, resolved, what_stays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Found = Callable[[str], None]
    Match = Callable[[bytes, int], re.Match[bytes] | None]
    # A part of a value: where it may end if it begins at a given position, preferred ends first.
    Step = Callable[[bytes, int], Iterable[int]]

Position = TypeVar("Position")

WIDEST = 29  # the most bytes that one character of a value takes, in any spelling we know

# What may begin an escape; each of these can end at one place only.
_BACKSLASHES = [rb"(?:\\|%%(?:25)?5[cC]){%d}" % times for times in (4, 3, 2, 1)]
_PERCENTS = [b"%252525", b"%2525", b"%25", b"%", rb"\\{1,4}u0025"]
_ANDS = [b"&amp;", b"&", b"%26", rb"\\{1,4}u0026"]
# The same, each as a single pattern.
_BACKSLASH = rb"(?:\\|%(?:25)?5[cC]){1,4}"
_PERCENT = rb"(?:%(?:25){0,3}|\\{1,4}u0025)"
_AND = rb"(?:&(?:amp;)?|%26|\\{1,4}u0026)"
# Only for these can one spelling be the beginning of another ("%" and "%25").
_SEVERAL_LENGTHS = b"%\\&"
_HEAD = 4  # characters by which the exact step finds the beginning of a value
_RUN = 64  # characters that are compared at once, in case none of them is escaped
_STANDARD = bytes.maketrans(b"-_", b"+/")
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


class Occurrence(NamedTuple):
    """Where a value is, and which one."""

    start: int
    end: int
    name: str
    placeholder: bytes


class Values:
    """Every value that one sandbox was ever given. None is ever removed: what was once a secret stays one."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Value] = {}

    def add(self, name: str, value: bytes, placeholder: bytes) -> None:
        """Adds a value to search for."""
        self._known[value] = _Value(name, value, placeholder)

    def include(self, other: Values) -> None:
        """Adds every value of `other`."""
        self._known = {**other._known, **self._known}

    def __bool__(self) -> bool:
        return bool(self._known)

    @property
    def longest(self) -> int:
        """The most bytes that any value can take in any spelling."""
        return WIDEST * max(map(len, self._known), default=0)

    def find(self, data: bytes) -> list[Occurrence]:
        """Every value in `data`, in order; overlapping ones are merged."""
        suspects = self._suspects(data)
        found = sorted(
            Occurrence(start, end, one.name, one.placeholder) for one in suspects for start, end in one.places(data)
        )
        apart: list[Occurrence] = []
        for one in found:
            if apart and one.start < apart[-1].end:
                apart[-1] = apart[-1]._replace(end=max(one.end, apart[-1].end))
            else:
                apart.append(one)
        return apart

    def scrubbed(self, data: bytes, *, same_length: bool = False, found: Found | None = None) -> bytes:
        """`data` with values replaced by placeholders. `found` is called with the name of each secret in it."""
        out, end = [], 0
        for one in self.find(data):
            if found is not None:
                found(one.name)
            out += [data[end : one.start], instead(one, same_length)]
            end = one.end
        return b"".join((*out, data[end:])) if out else data

    def in_name(self, name: bytes) -> bool:
        """Whether a header's name contains a value, in any case."""
        folded = name.lower()
        return any(value.lower() in folded for value in self._known) or bool(self.find(name))

    def _suspects(self, data: bytes) -> list[_Value]:
        left = list(self._known.values())
        suspects: list[_Value] = []
        for number, view in enumerate(_views(data)):
            if not left:
                break
            hits = [one for one in left if one.suspected(view, first=not number)]
            suspects += hits
            left = [one for one in left if one not in hits]
        return suspects


def instead(found: Occurrence, same_length: bool) -> bytes:
    """What replaces a value; with `same_length`, exactly as many bytes."""
    size = found.end - found.start
    return found.placeholder[:size].ljust(size, b"*") if same_length else found.placeholder


class _View(NamedTuple):
    folded: bytes  # in lower case
    standard: bytes  # in base64's standard alphabet


class _Value:
    """One value, and what is needed to search for it."""

    __slots__ = ("name", "placeholder", "_value", "_whole", "_ends", "_exact")

    def __init__(self, name: str, value: bytes, placeholder: bytes) -> None:
        self.name, self.placeholder, self._value = name, placeholder, value
        spelled = value.hex().encode(), [_certain(value, before) for before in range(3)]
        self._whole = [value.replace(b"\\", b"").lower()], *spelled
        self._ends = _plain_ends(value), what_stays(spelled[0]), [what_stays(one) for one in spelled[1]]
        self._exact: tuple[re.Pattern[bytes], list[list[Step]]] | None = None

    def __repr__(self) -> str:
        return f"_Value({self.name!r})"

    def suspected(self, view: _View, *, first: bool) -> bool:
        """`first`: the text as it is, where nothing can have been taken from the value."""
        plain, folded, standard = self._whole if first else self._ends
        return (
            any(one in view.folded for one in plain)
            or folded in view.folded
            or any(one in view.standard for one in standard)
        )

    def places(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Exactly where it is. The patterns are compiled at the first suspicion; usually there is none."""
        if self._exact is None:
            self._exact = _head(self._value), _ways(self._value)
        head, ways = self._exact
        at = 0
        while found := head.search(data, at):
            start = found.start()
            ends = (_end(way, data, start) for way in ways)
            end = next((end for end in ends if end is not None), None)
            if end is not None:
                yield start, end
            at = start + 1 if end is None else end


def _plain_ends(value: bytes) -> list[bytes]:
    """What is left of `value`, in lower case, in some view of any text that contains it. Escapes in the value itself
    are resolved with the text."""
    texts = [value]
    if any(sign in value for sign in SIGNS):
        for _ in range(ROUNDS):
            texts.append(resolved(texts[-1]))
    return [what_stays(text).replace(b"\\", b"").lower() for text in dict.fromkeys(texts)]


def _head(value: bytes) -> re.Pattern[bytes]:
    """How any spelling of `value` begins."""
    ways = [b"".join(map(_unit, value[:_HEAD])), b"(?i:%s)" % value[:_HEAD].hex().encode()]
    ways += [b"".join(map(_one_of, _base64(value, before)[:_HEAD])) for before in range(3)]
    return re.compile(b"|".join(ways))


def _ways(value: bytes) -> list[list[Step]]:
    """The ways to write `value`, each step by step."""
    mixed = [
        _choice(_each_length(part[0])) if part in _SEVERAL_LENGTHS else _run(part, part, _match)
        for part in re.findall(rb"[%%\\&]|[^%%\\&]{1,%d}" % _RUN, value)
    ]
    ways = [mixed, [_folded(value.hex().encode())]]
    for before in range(3):
        places = _base64(value, before)
        runs = [places[at : at + _RUN] for at in range(0, len(places), _RUN)]
        ways.append([_run(b"".join(place[:1] for place in run), run, _match_base64) for run in runs])
    return ways


def _end(steps: list[Step], data: bytes, start: int) -> int | None:
    """Where a match that begins at `start` ends, if there is one. No step is tried twice at the same position."""
    left, seen = [(0, start)], set()
    while left:
        state = left.pop()
        if state in seen:
            continue
        seen.add(state)
        done, at = state
        if done == len(steps):
            return at
        left += [(done + 1, end) for end in steps[done](data, at)][::-1]
    return None


def _run(plain: bytes, places: Iterable[Position], match_of: Callable[[Position], Match]) -> Step:
    """Characters in sequence, each of which can end at one position only. Usually they are as in `plain`."""

    def ends(data: bytes, at: int) -> Iterable[int]:
        if data.startswith(plain, at):
            return (at + len(plain),)
        for place in places:
            found = match_of(place)(data, at)
            if found is None:
                return ()
            at = found.end()
        return (at,)

    return ends


def _choice(matches: list[Match]) -> Step:
    """One character, whose spellings may end at several positions."""

    def ends(data: bytes, at: int) -> Iterable[int]:
        return [found.end() for match in matches if (found := match(data, at))]

    return ends


def _folded(text: bytes) -> Step:
    """Matches `text`, which is lower case, in either case."""

    def ends(data: bytes, at: int) -> Iterable[int]:
        end = at + len(text)
        return (end,) if data[at:end].lower() == text else ()

    return ends


def _views(data: bytes) -> Iterator[_View]:
    """`data` as it is, and with its escapes resolved, again and again. Backslashes are left out: how many stand before
    an escaped character depends on how often it was escaped."""
    for _ in range(ROUNDS):
        plain = data.replace(b"\\", b"")
        yield _View(plain.lower(), plain.translate(_STANDARD))
        data, before = resolved(data), data
        if data == before:
            return


def _hex(byte: int) -> bytes:
    return b"(?i:%02x)" % byte


def _spellings(byte: int, percents: list[bytes], backslashes: list[bytes], ands: list[bytes]) -> list[bytes]:
    plain = re.escape(bytes((byte,)))
    ways = [percent + b"(?:u00)?" + _hex(byte) for percent in percents]
    ways += [
        backslash + rb"(?:(?:u00|x|U000000)%s|u\{0{0,4}%s\}|%03o)" % (_hex(byte), _hex(byte), byte)
        for backslash in backslashes
    ]
    ways += [one + b"#0{0,7}%d%s" % (byte, END_OF_DECIMAL) for one in ands]
    ways += [one + b"#[xX]0{0,7}%s%s" % (_hex(byte), END_OF_HEX) for one in ands]
    if byte in NAMED:
        ways += [one + b"(?:%s);" % b"|".join(NAMED[byte]) for one in ands]
    if not plain.isalnum():
        ways += [backslash + plain for backslash in backslashes]
    if byte == 0x20:
        ways.append(rb"\+")
    return [*ways, plain]


def _unit(byte: int) -> bytes:
    """What may stand for one character, in either case."""
    cases = sorted({byte, *bytes((byte,)).swapcase()})
    return b"(?:%s)" % b"|".join(way for one in cases for way in _spellings(one, [_PERCENT], [_BACKSLASH], [_AND]))


@cache
def _match(byte: int) -> Match:
    return re.compile(_unit(byte)).match


@cache
def _each_length(byte: int) -> list[Match]:
    """The spellings of `_unit`, each as a pattern that can end at one place only, in the order in which `_unit` tries
    them."""
    return [re.compile(way).match for way in _spellings(byte, _PERCENTS, _BACKSLASHES, _ANDS)]


def _base64(value: bytes, before: int) -> list[bytes]:
    """The characters that each place of base64 may hold where `value` follows `before` bytes (modulo three): one in the
    middle, several at the ends, where a character also holds bits of a neighbour."""
    first, last = 8 * before, 8 * (before + len(value))
    low = b2a_base64(bytes(before) + value + bytes(2))
    high = b2a_base64(b"\xff" * before + value + b"\xff" * 2)
    places = slice(first // 6, (last + 5) // 6)
    return [_between(*pair) for pair in zip(low[places], high[places], strict=True)]


@cache
def _between(low: int, high: int) -> bytes:
    """The characters of base64 that have the bits which `low` and `high` have in common."""
    least, most = _BASE64.index(low), _BASE64.index(high)
    free = least ^ most
    return bytes(_BASE64[six] for six in range(64) if six & ~free == least & ~free)


def _certain(value: bytes, before: int) -> bytes:
    return b"".join(place for place in _base64(value, before) if len(place) == 1)


def _one_of(characters: bytes) -> bytes:
    """A place of base64, in either alphabet; `+` and `/` may be escaped."""
    more = (b"-" if b"+" in characters else b"") + (b"_" if b"/" in characters else b"")
    plain = b"[%s]" % b"".join(re.escape(bytes((one,))) for one in characters + more)
    ways = [_unit(byte) for byte in b"+/" if byte in characters]
    return b"(?:%s)" % b"|".join([plain, *ways]) if ways else plain


@cache
def _match_base64(characters: bytes) -> Match:
    return re.compile(_one_of(characters)).match
