"""JSON that can be read in one way only: no key twice, no NaN, no fraction, not too deep."""

from __future__ import annotations

import json
import re
from typing import Any

LONGEST = 256 * 1024
_DEEPEST = 32
# Text without an end is matched as well: else each quote in it would be tried as another beginning.
_NESTING = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


class NotJson(ValueError):
    """It is not JSON, or could mean two things."""


def loads(data: bytes | str, longest: int = LONGEST) -> Any:
    """The value. Raises NotJson."""
    if len(data) > longest:
        raise NotJson(f"is longer than {longest} bytes")
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        shallow(text)
        found = json.loads(text, object_pairs_hook=_once, parse_float=_refuse, parse_constant=_refuse, parse_int=_whole)
    except NotJson:
        raise
    except (ValueError, RecursionError):
        raise NotJson("is not JSON") from None
    return found


def dumps(value: Any) -> bytes:
    """The one spelling of a value: what a hash is made of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotJson("has a key twice")
    return found


def _refuse(text: str) -> Any:
    raise NotJson("has a number that is not whole")


def _whole(text: str) -> int:
    if len(text) > 80:
        raise NotJson("has a number that is too long")
    if text == "-0":
        raise NotJson("has a number that could be written in another way")
    return int(text)


def shallow(text: str) -> None:
    """Raises NotJson for text that is nested too deeply.

    Called before parsing: eth-abi raises the recursion limit so far that the parser would overflow the stack and end
    the process instead of raising an exception.
    """
    depth = 0
    for found in _NESTING.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > _DEEPEST:
            raise NotJson("is nested too deeply")
