"""Finding a secret's value in bytes, however those who pass text on commonly write it.

What counts as the value is an equivalence, not a list of spellings: each of its characters may stand plainly or escaped
(percent, JSON, C, HTML; either case; escaped again up to four times), independently of its neighbours; or the whole is
in hexadecimal, or somewhere within base64 (either alphabet, any of the three alignments, padded or not).

Searching is done in two steps. The first is fast and may err on one side only: it resolves escapes and looks for the
end of each value. The second is exact, and needed only where the first has found something.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDEST = 26  # bytes that one character of a value takes at most, in any spelling we know
# An escape before a value can swallow the value's first characters when it is resolved ("%" + "41…" is "A…").
_SWALLOWED = 6

_BACKSLASH = rb"(?:\\|%(?:25)?5[cC]){1,4}"
_PERCENT = rb"(?:%(?:25){0,3}|\\{1,4}u0025)"
_AND = rb"(?:&(?:amp;)?|%26|\\{1,4}u0026)"
_NAMED = {ord('"'): b"quot", ord("'"): b"apos", ord("<"): b"lt", ord(">"): b"gt", ord("&"): b"amp"}
_ESCAPE = re.compile(
    rb"%([0-9A-Fa-f]{2})|\\{1,8}(?:u00|x)([0-9A-Fa-f]{2})|&#0{0,4}([0-9]{2,3});|&#[xX]0{0,4}([0-9A-Fa-f]{2});"
    rb"|&(quot|apos|lt|gt|amp);"
)
_UNNAMED = {name: bytes((byte,)) for byte, name in _NAMED.items()}
_STANDARD = bytes.maketrans(b"-_", b"+/")
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


class Found(NamedTuple):
    """Where a value stands, and whose it is."""

    start: int
    end: int
    name: str
    placeholder: bytes


class Values:
    """Every value that was ever given to one sandbox. Nothing is ever taken out: what was once a secret stays one."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Value] = {}

    def add(self, name: str, value: bytes, placeholder: bytes) -> None:
        """From now on `value` is looked for."""
        self._known[value] = _Value(name, value, placeholder)

    def __bool__(self) -> bool:
        return bool(self._known)

    @property
    def longest(self) -> int:
        """How many bytes the longest of them takes in any spelling."""
        return WIDEST * max(map(len, self._known), default=0)

    def find(self, data: bytes) -> list[Found]:
        """Every value in `data`, in order; those that overlap are one."""
        suspects = self._suspects(data)
        found = sorted(
            Found(match.start(), match.end(), one.name, one.placeholder)
            for one in suspects
            for match in one.pattern.finditer(data)
        )
        apart: list[Found] = []
        for one in found:
            if apart and one.start < apart[-1].end:
                apart[-1] = apart[-1]._replace(end=max(one.end, apart[-1].end))
            else:
                apart.append(one)
        return apart

    def scrubbed(self, data: bytes, *, same_length: bool = False) -> bytes:
        """`data` with placeholders in the place of values."""
        out, end = [], 0
        for one in self.find(data):
            out += [data[end : one.start], instead(one, same_length)]
            end = one.end
        return b"".join((*out, data[end:])) if out else data

    def in_name(self, name: bytes) -> bool:
        """Whether a header's name holds one; case does not count there."""
        folded = name.lower()
        return any(value.lower() in folded for value in self._known) or bool(self.find(name))

    def _suspects(self, data: bytes) -> list[_Value]:
        left = list(self._known.values())
        suspects: list[_Value] = []
        for view in _views(data):
            if not left:
                break
            hits = [one for one in left if one.suspected(view)]
            suspects += hits
            left = [one for one in left if one not in hits]
        return suspects


def instead(found: Found, same_length: bool) -> bytes:
    """What stands in a value's place; as long as it was, where a length was promised."""
    size = found.end - found.start
    return found.placeholder[:size].ljust(size, b"*") if same_length else found.placeholder


class _View(NamedTuple):
    plain: bytes
    folded: bytes  # in lower case, for hexadecimal
    standard: bytes  # in base64's standard alphabet


class _Value:
    """One value, with what it is looked for by."""

    __slots__ = ("name", "placeholder", "_value", "_ends", "_pattern")

    def __init__(self, name: str, value: bytes, placeholder: bytes) -> None:
        self.name, self.placeholder, self._value = name, placeholder, value
        self._ends = (
            value[_SWALLOWED:].replace(b"\\", b""),
            value.hex().encode()[_SWALLOWED:],
            [_certain(value, before)[_SWALLOWED:] for before in range(3)],
        )
        self._pattern: re.Pattern[bytes] | None = None

    def __repr__(self) -> str:
        return f"_Value({self.name!r})"

    def suspected(self, view: _View) -> bool:
        plain, folded, standard = self._ends
        return plain in view.plain or folded in view.folded or any(one in view.standard for one in standard)

    @property
    def pattern(self) -> re.Pattern[bytes]:
        """The exact one; made when it is first needed, which mostly is never."""
        if self._pattern is None:
            ways = [b"".join(_unit(byte) for byte in self._value), b"(?i:%s)" % self._value.hex().encode()]
            ways += [b"".join(map(_one_of, _base64(self._value, before))) for before in range(3)]
            self._pattern = re.compile(b"|".join(ways))
        return self._pattern


def _views(data: bytes) -> Iterator[_View]:
    """`data` as it is, and with its escapes resolved, again and again. Backslashes are left out: how many stand before
    an escaped character depends on how often it was escaped."""
    for _ in range(6):
        plain = data.replace(b"\\", b"")
        yield _View(plain, plain.lower(), plain.translate(_STANDARD))
        resolved = _ESCAPE.sub(_resolved, data) if b"%" in data or b"\\" in data or b"&" in data else data
        if resolved == data:
            return
        data = resolved


def _resolved(match: re.Match[bytes]) -> bytes:
    if match[5]:
        return _UNNAMED[match[5]]
    number = int(match[3]) if match[3] else int(match[1] or match[2] or match[4], 16)
    return bytes((number,)) if number < 256 else match[0]


def _hex(byte: int) -> bytes:
    return b"(?i:%02x)" % byte


def _unit(byte: int) -> bytes:
    """What may stand for one character."""
    plain = re.escape(bytes((byte,)))
    ways = [_PERCENT + _hex(byte), _BACKSLASH + b"(?:u00|x)" + _hex(byte)]
    ways += [_AND + b"#0{0,4}%d;" % byte, _AND + b"#[xX]0{0,4}" + _hex(byte) + b";"]
    if byte in _NAMED:
        ways.append(_AND + _NAMED[byte] + b";")
    if byte in b"\"'/\\":
        ways.append(_BACKSLASH + plain)
    if byte == 0x20:
        ways.append(rb"\+")
    return b"(?:%s)" % b"|".join([*ways, plain])


def _base64(value: bytes, before: int) -> list[bytes]:
    """The characters that each place of base64 may hold where `value` follows `before` bytes (modulo three): one in the
    middle, several at the ends, where a character also holds bits of a neighbour."""
    first, last = 8 * before, 8 * (before + len(value))
    low = bytes(before) + value + bytes(2)
    high = b"\xff" * before + value + b"\xff" * 2
    places = []
    for at in range(first // 6, (last + 5) // 6):
        shift = 6 * at
        least, most = _six(low, shift), _six(high, shift)
        free = least ^ most
        places.append(bytes(_BASE64[six] for six in range(64) if six & ~free == least & ~free))
    return places


def _six(data: bytes, shift: int) -> int:
    pair = int.from_bytes(data[shift // 8 : shift // 8 + 2].ljust(2, b"\0"), "big")
    return pair >> (10 - shift % 8) & 63


def _certain(value: bytes, before: int) -> bytes:
    return b"".join(place for place in _base64(value, before) if len(place) == 1)


def _one_of(characters: bytes) -> bytes:
    """A place of base64, in either alphabet; what is no letter may be escaped."""
    more = (b"-" if b"+" in characters else b"") + (b"_" if b"/" in characters else b"")
    plain = b"[%s]" % b"".join(re.escape(bytes((one,))) for one in characters + more)
    ways = [_unit(byte) for byte in b"+/" if byte in characters]
    return b"(?:%s)" % b"|".join([plain, *ways]) if ways else plain
