"""Plain data as JSON text, without importing `json`: this is on the path of every `sandbox run`."""

from __future__ import annotations

# The C half of the standard library's encoder; `json` itself costs two milliseconds that a short run would notice.
from _json import encode_basestring_ascii as quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_WORDS = {True: "true", False: "false", None: "null"}


def encode(value: object) -> str:
    """JSON of text, numbers, booleans, None, lists and dicts with text keys. Raises TypeError for anything else."""
    writer = _WRITERS.get(type(value))
    if writer is None:
        raise TypeError(f"{type(value).__name__} is not plain data")
    return writer(value)


def _mapping(value: dict[str, object]) -> str:
    return "{" + ", ".join(f"{quoted(key)}: {encode(item)}" for key, item in value.items()) + "}"


def _sequence(value: list[object]) -> str:
    return "[" + ", ".join(map(encode, value)) + "]"


def _number(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        raise TypeError(f"{value} has no spelling in JSON")
    return repr(value)


_WRITERS: dict[type, Callable[..., str]] = {
    str: quoted,
    bool: _WORDS.__getitem__,
    type(None): _WORDS.__getitem__,
    int: repr,
    float: _number,
    dict: _mapping,
    list: _sequence,
    tuple: _sequence,
}
