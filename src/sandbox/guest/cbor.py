"""The subset of CBOR that `guest/protocol.md` allows: integers, bytes, text, arrays, maps with text keys, true, false,
null; definite lengths; eight levels.

Our own, because what comes from the guest is hostile input, and a decoder of the subset alone has less to attack; and
because importing a general library takes longer than building the walls.
"""

from __future__ import annotations

# `struct` itself is one more file to load.
from _struct import error as StructError  # type: ignore[attr-defined]  # typeshed has it in `struct`
from _struct import pack, unpack_from

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

DEPTH = 8
KEYS = 64
_SHORTEST = (24, 2**8, 2**16, 2**32)


class Malformed(ValueError):
    """The bytes are not one value of the subset."""


class EncodedOnce(tuple[bytes, ...]):
    """Strings that are sent again and again: they are encoded once."""

    encoded: bytes

    def __new__(cls, strings: Iterable[bytes]) -> EncodedOnce:
        self = super().__new__(cls, strings)
        self.encoded = encode(tuple(self))
        return self


def encode(value: object) -> bytes:
    """`value` as CBOR. Raises TypeError for a type that the subset does not have."""
    out = bytearray()
    _encode(value, out)
    return bytes(out)


def decode(data: bytes) -> Any:
    """The one value that `data` holds. Raises Malformed for anything else, whatever the bytes."""
    try:
        value, end = _decode(data, 0, DEPTH)
    except (IndexError, StructError):
        raise Malformed("cut short") from None
    if end != len(data):
        raise Malformed("bytes after the value")
    return value


def _head(major: int, number: int, out: bytearray) -> None:
    if number < 24:
        out.append(major << 5 | number)
    elif number < 2**8:
        out += pack(">BB", major << 5 | 24, number)
    elif number < 2**16:
        out += pack(">BH", major << 5 | 25, number)
    elif number < 2**32:
        out += pack(">BI", major << 5 | 26, number)
    else:
        out += pack(">BQ", major << 5 | 27, number)


def _encode(value: object, out: bytearray) -> None:
    kind = type(value)
    # A plan has about 700 values, nearly all of them short text and bytes: their heads are written here.
    if kind is str or kind is bytes:
        raw: bytes = value.encode() if kind is str else value  # type: ignore[attr-defined, assignment]
        size, major = len(raw), 3 if kind is str else 2
        if size < 24:
            out.append(major << 5 | size)
        else:
            _head(major, size, out)
        out += raw
    elif kind is EncodedOnce:
        out += value.encoded  # type: ignore[attr-defined]
    elif value is None or value is True or value is False:
        out.append(0xF6 if value is None else 0xF5 if value else 0xF4)
    elif isinstance(value, int):
        _head(0, value, out) if value >= 0 else _head(1, -1 - value, out)
    elif isinstance(value, dict):
        _head(5, len(value), out)
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"map keys are text, not {key!r}")
            _encode(key, out)
            _encode(item, out)
    elif isinstance(value, list | tuple):
        _head(4, len(value), out)
        for item in value:
            _encode(item, out)
    elif isinstance(value, str):  # a kind of text, such as a message
        _head(3, len(raw := value.encode()), out)
        out += raw
    elif isinstance(value, bytes | bytearray | memoryview):
        _head(2, len(value), out)
        out += value
    else:
        raise TypeError(f"the guest's language has no word for {type(value).__name__}")


_SIMPLE = {0xF4: False, 0xF5: True, 0xF6: None}


def _decode(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    first = data[at]
    if first in _SIMPLE:
        return _SIMPLE[first], at + 1
    major, number = first >> 5, first & 31
    at += 1
    if number >= 24:
        if number > 27:
            raise Malformed(f"byte {first:#x}")
        form = number - 24
        (number,) = unpack_from(">" + "BHIQ"[form], data, at)
        at += 1 << form
        if number < _SHORTEST[form]:  # one value, one encoding: the two decoders can never differ
            raise Malformed("a number in too many bytes")
    if major == 0:
        return number, at
    if major == 1:
        if number >= 2**63:
            raise Malformed("a number below 64 bits")
        return -1 - number, at
    if major in (2, 3):
        end = at + number
        if end > len(data):
            raise Malformed("cut short")
        raw = data[at:end]
        if major == 2:
            return raw, end
        try:
            return raw.decode(), end
        except UnicodeDecodeError:
            raise Malformed("text that is not UTF-8") from None
    if major > 5:
        raise Malformed(f"byte {first:#x}")
    if depth == 0:
        raise Malformed("too deep")
    # Each item takes at least a byte: a length beyond the data is refused before anything is allocated.
    if number > len(data) - at:
        raise Malformed("cut short")
    return _items(data, at, number, depth - 1) if major == 4 else _entries(data, at, number, depth - 1)


def _items(data: bytes, at: int, number: int, depth: int) -> tuple[list[Any], int]:
    items = []
    for _ in range(number):
        item, at = _decode(data, at, depth)
        items.append(item)
    return items, at


def _entries(data: bytes, at: int, number: int, depth: int) -> tuple[dict[str, Any], int]:
    if number > KEYS:
        raise Malformed("too many keys")
    entries: dict[str, Any] = {}
    for _ in range(number):
        key, at = _decode(data, at, depth)
        if not isinstance(key, str) or key in entries:
            raise Malformed("a key that is not text, or twice the same")
        entries[key], at = _decode(data, at, depth)
    return entries, at
