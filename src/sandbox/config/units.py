"""Sizes and durations as people write them: "512m", "1.5 GiB", "30s", "5 min"."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    N = TypeVar("N", int, float)

_SIZES = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SECONDS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def size(value: "Any") -> int:
    """Bytes. Raises ValueError for anything that is not a positive size."""
    number, unit = _split(value, "a size such as 512m")
    unit = unit.removesuffix("ib").removesuffix("b") if unit != "b" else unit
    if unit not in _SIZES:
        raise ValueError(f"must be a size such as 512m or 2g, not {value!r}")
    return _positive(int(number * _SIZES[unit]), value)


def seconds(value: "Any") -> float:
    """Seconds. Raises ValueError for anything that is not a positive duration."""
    number, unit = _split(value, "a duration such as 30s")
    if unit not in _SECONDS:
        raise ValueError(f"must be a duration such as 30s or 5m, not {value!r}")
    return _positive(number * _SECONDS[unit], value)


def cpus(value: "Any") -> float:
    """A number of processors, fractions allowed."""
    number, unit = _split(value, "a number of processors")
    if unit:
        raise ValueError(f"must be a number of processors such as 1.5, not {value!r}")
    return _positive(number, value)


def count(value: "Any") -> int:
    """A positive whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, not {value!r}")
    return _positive(value, value)


def _split(value: "Any", what: str) -> tuple[float, str]:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"must be {what}, not {value!r}")
    if not isinstance(value, str):
        return float(value), ""
    text = value.strip().lower()
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    try:
        number = float(digits)
    except ValueError:
        raise ValueError(f"must be {what}, not {value!r}") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError(f"must be {what}, not {value!r}")
    return number, text[len(digits) :].strip()


def _positive(number: "N", value: object) -> "N":
    if number <= 0:
        raise ValueError(f"must be more than zero, not {value!r}")
    return number


LEAST_MEMORY = 8 * 2**20


def memory(value: object) -> int:
    """A size that some program can start in. Raises ValueError with the least that works."""
    given = size(value)
    if given < LEAST_MEMORY:
        raise ValueError(f"{given} bytes are too few for any program to start; the least that works is 8m")
    return given
