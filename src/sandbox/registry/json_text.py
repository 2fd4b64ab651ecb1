"""Plain data as JSON text and back, without importing `json`: this is on the path of every `sandbox run`."""

from __future__ import annotations

from sandbox.audit.entry import quoted

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


class _Settings:
    """The scanner's settings, as in `json.loads`."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_int, parse_float, parse_constant = int, float, float


def decode(text: str) -> object:
    """The value that `text` begins with. Raises ValueError."""
    # The C part of the standard library's `json`. Importing all of `json` (with `re`) takes milliseconds.
    from _json import make_scanner

    try:
        # Typeshed takes the scanner itself for its settings.
        return make_scanner(_Settings)(text, 0)[0]  # type: ignore[arg-type]
    except StopIteration:
        raise ValueError("not JSON") from None
