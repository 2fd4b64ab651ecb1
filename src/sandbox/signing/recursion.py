"""The interpreter's limit of nesting. eth-abi raises it a hundredfold when it is imported.

With that, the next parser that meets hostile nesting overflows the stack and ends the process, instead of complaining.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def limit_kept() -> Iterator[None]:
    """What is imported meanwhile does not change the limit."""
    limit = sys.getrecursionlimit()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
