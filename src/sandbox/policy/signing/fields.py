"""The fields of a request, read strictly: there is one spelling of every value, and everything has a bound.

Requests come from programs that may want to steal the money. A value that could be read in two ways (hex for decimal,
"1e18", "+1", full-width digits, true for 1) is refused, so that the rules judge the number that is signed.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Keccak = Callable[[bytes], bytes]

MOST_WEI = 2**128 - 1  # more than exists
MOST_CHAIN = 2**53 - 1  # JavaScript cannot represent larger numbers exactly
MOST_NONCE = 2**64 - 2  # EIP-2681
MOST_DATA = 24 * 1024
_HEX = frozenset("0123456789abcdef")


class MalformedField(ValueError):
    """A field of a request cannot be read. `field` is its name, `problem` says what is wrong with it."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}")


def decimal(field: str, value: object, most: int = MOST_WEI) -> int:
    """A whole number in decimal digits, as text: the form that Ethereum's amounts have in JSON. Raises Malformed."""
    if not isinstance(value, str):
        raise MalformedField(field, "must be text with decimal digits")
    if not value or len(value) > 39 or not value.isascii() or not value.isdigit() or (value[0] == "0" and value != "0"):
        raise MalformedField(field, "must be a whole number in decimal digits, without sign, exponent or leading zeros")
    return _bounded(field, int(value), most)


def number(field: str, value: object, most: int) -> int:
    """A JSON number that is whole and not negative. Raises Malformed."""
    if type(value) is not int:  # neither True nor 1.0
        raise MalformedField(field, "must be a whole number")
    return _bounded(field, value, most)


def _bounded(field: str, value: int, most: int) -> int:
    if not 0 <= value <= most:
        raise MalformedField(field, f"must be from 0 to {most}")
    return value


def data(field: str, value: object, most: int = MOST_DATA) -> bytes:
    """Bytes as `0x` and an even number of hexadecimal digits."""
    if not isinstance(value, str) or not value.startswith("0x"):
        raise MalformedField(field, "must be text that begins with 0x")
    digits = value[2:].lower()
    if len(digits) > 2 * most:
        raise MalformedField(field, f"is longer than {most} bytes")
    if len(digits) % 2 or not _HEX.issuperset(digits):
        raise MalformedField(field, "must have an even number of hexadecimal digits")
    return bytes.fromhex(digits)


def address(field: str, value: object, keccak: Keccak) -> str:
    """An address in lower case. One in mixed case must have the right checksum (EIP-55)."""
    if not isinstance(value, str) or not value.startswith("0x") or len(value) != 42:
        raise MalformedField(field, "must be an address: 0x and 40 hexadecimal digits")
    digits = value[2:]
    if not _HEX.issuperset(digits.lower()) or not digits.isascii():
        raise MalformedField(field, "must be an address: 0x and 40 hexadecimal digits")
    if digits not in (digits.lower(), digits.upper()) and value != checksummed(value, keccak):
        raise MalformedField(field, "has a wrong checksum (EIP-55): a digit may be mistyped")
    return value.lower()


def checksummed(address: str, keccak: Keccak) -> str:
    """The address with its checksum in the case of its letters (EIP-55)."""
    low = address[2:].lower()
    nibbles = keccak(low.encode()).hex()
    return "0x" + "".join(c.upper() if int(nibble, 16) > 7 else c for c, nibble in zip(low, nibbles, strict=False))


def name(field: str, value: object, longest: int = 128) -> str:
    """A short printable ASCII text: an id that is stored, compared and printed."""
    if not isinstance(value, str) or not 0 < len(value) <= longest:
        raise MalformedField(field, f"must be text of 1 to {longest} characters")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise MalformedField(field, "must have printable ASCII characters without spaces")
    return value
