"""Keeps the interpreter's recursion limit, which eth-abi raises a hundredfold when it is imported.

With the raised limit, a parser that meets hostile nesting overflows the stack and ends the process instead of raising
an exception.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def limit_kept() -> Iterator[None]:
    """Restores the limit after what is imported in the block."""
    limit = sys.getrecursionlimit()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
