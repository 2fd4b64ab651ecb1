"""How much of bodies one sandbox may have the gate keep in memory, all its requests together.

A single request's share is bounded where it is read; a thousand connections of a hundred streams each are bounded here.
"""

from __future__ import annotations

LIMIT = 256 * 2**20


class Allowance:
    """Bytes that may be kept. Taken by whoever keeps some, given back when they are passed on or forgotten."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._left = limit

    @property
    def spent(self) -> bool:
        """Whether nothing more should be kept."""
        return self._left <= 0

    def keep(self, size: int) -> Kept:
        """Counts `size` bytes until the returned object is forgotten."""
        return Kept(self, size)

    def change(self, size: int) -> None:
        """`size` more bytes are kept; fewer, when it is negative."""
        self._left -= size


class Kept:
    """A number of bytes that count until this is collected: with whatever holds them, on every path."""

    __slots__ = ("_allowance", "size")

    def __init__(self, allowance: Allowance, size: int) -> None:
        self._allowance = allowance
        self.size = 0
        self.add(size)

    def add(self, size: int) -> None:
        """More, or with a negative size fewer."""
        self.size += size
        self._allowance.change(size)

    def __del__(self) -> None:
        self._allowance.change(-self.size)
