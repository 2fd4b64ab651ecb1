"""Synthetic addresses: each name a tenant may reach gets one IPv4 and one IPv6 address that nobody else has.

They say which name a connection means, whatever protocol it speaks. The ranges are those set aside for benchmarks,
which no real host uses; the numbers go round a ring far larger than the table, so that an address a
program kept is not soon another name's.
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
    """Both directions of the mapping, bounded: the name asked for longest ago goes, unless a connection holds it."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._numbers: dict[str, int] = {}  # in order of last use
        self._names: dict[int, str] = {}
        self._held: dict[str, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def addresses(self, name: str) -> tuple[bytes, bytes]:
        """The name's addresses, as they go on the wire."""
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
        """A connection to `name` begins; until `release` its addresses stay its own."""
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
    """Whether the address is one that only we give meaning to."""
    parsed = parse_address(address)
    return _number(parsed) is not None or (
        parsed is not None and parsed[0] == 32 and _RESERVED[0] <= parsed[1] < _RESERVED[1]
    )


def _number(address: Address | None) -> int | None:
    if address is None:
        return None
    number = address[1] - (_FIRST_V4 if address[0] == 32 else _FIRST_V6)
    return number if 0 <= number < _RING else None
