"""Bounds the memory that the gate spends on the bodies of all of one sandbox's requests and responses.

A single request's share is bounded where it is read. A thousand connections of a hundred streams each are bounded here.
"""

from __future__ import annotations

LIMIT = 256 * 2**20


class Allowance:
    """A number of bytes that may be kept. Bytes that are passed on or dropped no longer count."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._left = limit

    @property
    def spent(self) -> bool:
        """Whether no more should be kept."""
        return self._left <= 0

    def keep(self, size: int) -> CountedBytes:
        """Counts `size` bytes until the returned object is dropped."""
        return CountedBytes(self, size)

    def change(self, size: int) -> None:
        """Counts `size` more bytes, or fewer when it is negative."""
        self._left -= size


class CountedBytes:
    """A number of bytes that count until this object is collected, together with what holds them."""

    __slots__ = ("_allowance", "size")

    def __init__(self, allowance: Allowance, size: int) -> None:
        self._allowance = allowance
        self.size = 0
        self.add(size)

    def add(self, size: int) -> None:
        """Counts `size` more bytes, or fewer when it is negative."""
        self.size += size
        self._allowance.change(size)

    def __del__(self) -> None:
        self._allowance.change(-self.size)
