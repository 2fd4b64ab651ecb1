"""Synthetic addresses: each name that a tenant looks up gets an IPv4 and an IPv6 address of its own.

They tell which name a connection is for, whatever its protocol. The ranges are reserved for benchmarks, so no real host
uses them. Numbers are handed out in a ring far larger than the table, so that an address that a program has kept does
not soon belong to another name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.policy.addresses import parse_address

if TYPE_CHECKING:
    from sandbox.policy.addresses import Address

PROXY = "198.18.0.3"

_FIRST_V4 = 0xC6120100  # 198.18.1.0
_FIRST_V6 = 0x20010002 << 96 | 1 << 16  # 2001:2::1:0
_RING = 0xC6140000 - _FIRST_V4
_RESERVED = (0xC6120000, _FIRST_V4)

CAPACITY = 16384


class SyntheticAddresses:
    """The mapping in both directions. It is bounded: the name looked up longest ago goes first, unless it is in use."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._numbers: dict[str, int] = {}  # in order of their last look-up
        self._names: dict[int, str] = {}
        self._held: dict[str, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def addresses(self, name: str) -> tuple[bytes, bytes]:
        """The name's addresses, in network byte order."""
        number = self._numbers.pop(name, None)
        if number is None:
            self._make_room()
            number = self._free_number()
            self._names[number] = name
        self._numbers[name] = number
        return (_FIRST_V4 + number).to_bytes(4, "big"), (_FIRST_V6 + number).to_bytes(16, "big")

    def name_of(self, address: str) -> str | None:
        """The name behind a synthetic address, or None."""
        number = _number(parse_address(address))
        return None if number is None else self._names.get(number)

    def hold(self, name: str) -> None:
        """A connection to `name` begins; its addresses are kept until `release`."""
        self._held[name] = self._held.get(name, 0) + 1

    def release(self, name: str) -> None:
        """That connection ended."""
        count = self._held.pop(name, 0) - 1
        if count > 0:
            self._held[name] = count

    def _make_room(self) -> None:
        if len(self._numbers) >= self._capacity:
            oldest = next((name for name in self._numbers if name not in self._held), None)
            if oldest is not None:
                del self._names[self._numbers.pop(oldest)]

    def _free_number(self) -> int:
        while self._next in self._names:
            self._next = (self._next + 1) % _RING
        number = self._next
        self._next = (number + 1) % _RING
        return number


def is_synthetic(address: str) -> bool:
    """Whether the address is in the synthetic ranges."""
    parsed = parse_address(address)
    return _number(parsed) is not None or (
        parsed is not None and parsed[0] == 32 and _RESERVED[0] <= parsed[1] < _RESERVED[1]
    )


def _number(address: Address | None) -> int | None:
    if address is None:
        return None
    number = address[1] - (_FIRST_V4 if address[0] == 32 else _FIRST_V6)
    return number if 0 <= number < _RING else None
