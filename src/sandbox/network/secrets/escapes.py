"""The escapes that the search for a value resolves: percent, JSON, C and HTML. Pure functions."""

from __future__ import annotations

import re

SIGNS = (b"%", b"\\", b"&")  # that begin an escape
# HTML's names of printable ASCII characters.
NAMED = {
    ord(character): tuple(names.encode().split())
    for character, names in {
        "!": "excl",
        '"': "quot QUOT",
        "#": "num",
        "$": "dollar",
        "%": "percnt",
        "&": "amp AMP",
        "'": "apos",
        "(": "lpar",
        ")": "rpar",
        "*": "ast midast",
        "+": "plus",
        ",": "comma",
        ".": "period",
        "/": "sol",
        ":": "colon",
        ";": "semi",
        "<": "lt LT",
        "=": "equals",
        ">": "gt GT",
        "?": "quest",
        "@": "commat",
        "[": "lsqb lbrack",
        "\\": "bsol",
        "]": "rsqb rbrack",
        "^": "Hat",
        "_": "lowbar UnderBar",
        "`": "grave DiacriticalGrave",
        "{": "lcub lbrace",
        "|": "verbar vert VerticalLine",
        "}": "rcub rbrace",
    }.items()
}
# What ends a character's number in HTML: a semicolon, or anything that cannot belong to the number.
END_OF_DECIMAL, END_OF_HEX = rb"(?:;|(?![;0-9]))", rb"(?:;|(?![;0-9A-Fa-f]))"

_BYTES = {name: bytes((byte,)) for byte, names in NAMED.items() for name in names}
# Each of the three begins with a plain character, so the search can jump quickly from one to the next.
_ESCAPE = re.compile(
    rb"%%(?:u00)?([0-9A-Fa-f]{2})"
    rb"|\\\\{0,7}(?:(?:u00|x|U000000)([0-9A-Fa-f]{2})|u\{0{0,4}([0-9A-Fa-f]{2})\}|([0-3][0-7]{2}))"
    rb"|&(?:#(?:[xX]0{0,7}([0-9A-Fa-f]{2})%s|0{0,7}([0-9]{2,3})%s)|(%s);)"
    % (END_OF_HEX, END_OF_DECIMAL, b"|".join(_BYTES))
)
_OCTAL, _DECIMAL, _NAME = 4, 6, 7  # groups of `_ESCAPE`; the others are hexadecimal
_SHAPES = (
    b"%u0011",
    b"%11",
    rb"\u0011",
    rb"\U00000011",
    rb"\x11",
    rb"\u{000011}",
    rb"\111",
    b"&#0000000111;",
    b"&#x000000011;",
)
_BEGINNINGS = tuple({shape[:size] for shape in _SHAPES for size in range(1, len(shape))})
_NAMED_BEGINNINGS = tuple({b"&" + name[:size] for name in _BYTES for size in range(len(name) + 1)})
_END_OF_NAME = re.compile(rb"[A-Za-z]{0,16};")
ROUNDS = 6  # how many times escapes are resolved


def resolved(data: bytes) -> bytes:
    """`data` with its escapes resolved, once."""
    return _ESCAPE.sub(_byte, data) if any(sign in data for sign in SIGNS) else data


def _byte(match: re.Match[bytes]) -> bytes:
    kind = match.lastindex or 0
    if kind == _NAME:
        return _BYTES[match[kind]]
    number = int(match[kind], 10 if kind == _DECIMAL else 8 if kind == _OCTAL else 16)
    return bytes((number,)) if number < 256 else match[0]


def what_stays(text: bytes) -> bytes:
    """The part of `text` that survives when escapes are resolved repeatedly, whatever stands before and after it. An
    escape that begins before it can take its first characters ("%" + "41…" is "A…"), and one that begins near its end
    can take its last."""
    begin = 0
    for _ in range(ROUNDS):
        taken = _swallowed(text[begin : begin + 32])
        if not taken:
            break
        begin += taken
    tail = max(begin, len(text) - 20)
    ends = [at for sign in SIGNS if (at := text.find(sign, tail)) >= 0]
    return text[begin : min(ends, default=len(text))]


def _swallowed(text: bytes) -> int:
    """How many of the first characters of `text` an escape that begins before it can take."""
    beginnings = _BEGINNINGS + (_NAMED_BEGINNINGS if _END_OF_NAME.match(text) else ())
    found = ((before, _ESCAPE.match(before + text)) for before in beginnings)
    return max((match.end() - len(before) for before, match in found if match), default=0)
