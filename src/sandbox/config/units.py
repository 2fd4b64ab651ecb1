"""Sizes and durations as people write them: "512m", "1.5 GiB", "30s", "5 min"."""

from sandbox.errors import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    N = TypeVar("N", int, float)

_SIZES = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
LEAST_CPUS = 0.01  # the kernel's minimum: a millisecond of each tenth of a second
_SECONDS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def size(value: "Any") -> int:
    """Bytes. Raises ValueError for anything that is not a positive size."""
    number, unit = _split(value, Message("a size such as 512m"))
    unit = unit.removesuffix("ib").removesuffix("b") if unit != "b" else unit
    if unit not in _SIZES:
        raise ValueError(Message("must be a size such as 512m or 2g, not {value!r}", value=value))
    return _positive(int(min(number * _SIZES[unit], 2**61)), value, 2**60)


def seconds(value: "Any") -> float:
    """Seconds. Raises ValueError for anything that is not a positive duration."""
    number, unit = _split(value, Message("a duration such as 30s"))
    if unit not in _SECONDS:
        raise ValueError(Message("must be a duration such as 30s or 5m, not {value!r}", value=value))
    return _positive(number * _SECONDS[unit], value, 1e9)


def cpus(value: "Any") -> float:
    """A number of processors, fractions allowed."""
    number, unit = _split(value, Message("a number of processors"))
    if unit:
        raise ValueError(Message("must be a number of processors such as 1.5, not {value!r}", value=value))
    given = _positive(number, value, 1e6)
    if given < LEAST_CPUS:
        raise ValueError(Message("{value!r} is too small; the minimum is {minimum}", value=value, minimum=LEAST_CPUS))
    return given


def count(value: "Any") -> int:
    """A positive whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(Message("must be a whole number, not {value!r}", value=value))
    return _positive(value, value, 2**31 - 1)


_WEI = {"": 0, "wei": 0, "gwei": 9, "ether": 18, "eth": 18}


def wei(value: "Any") -> int:
    """An amount in wei: a whole number, or text such as "0.1 ether" or "30 gwei". Exact: no float is involved."""
    problem = Message("must be an amount such as 0.1 ether, 30 gwei or a number of wei, not {value!r}", value=value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(problem)
    words = str(value).split()
    places = _WEI.get(words[1].lower() if words[1:] else "")
    whole, dot, part = words[0].partition(".") if len(words) in (1, 2) else ("", "", "")
    fits = places is not None and len(part) <= places and bool(part) == bool(dot)
    if not fits or not (whole + part).isdecimal() or not (whole + part).isascii() or not whole or len(whole) > 78:
        raise ValueError(problem)
    return int(whole + part.ljust(places or 0, "0"))


def whole_wei(value: "Any") -> int:
    """An amount as `wei` reads it, but it may be negative, as an `int256` may."""
    if isinstance(value, int) and not isinstance(value, bool):
        return -wei(-value) if value < 0 else wei(value)
    negative = isinstance(value, str) and value.strip().startswith("-")
    return -wei(value.strip()[1:]) if negative else wei(value)


def _split(value: "Any", what: str) -> tuple[float, str]:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(Message("must be {what}, not {value!r}", what=what, value=value))
    if not isinstance(value, str):
        try:
            return _finite(float(value), value, what), ""
        except OverflowError:
            raise ValueError(Message("must be {what}, and this number is too large", what=what)) from None
    text = value.strip().lower()
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    try:
        number = float(digits)
    except ValueError:
        raise ValueError(Message("must be {what}, not {value!r}", what=what, value=value)) from None
    return _finite(number, value, what), text[len(digits) :].strip()


def _finite(number: float, value: object, what: str) -> float:
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError(Message("must be {what}, not {value!r}", what=what, value=value))
    return number


def _positive(number: "N", value: object, most: "N") -> "N":
    if number <= 0:
        raise ValueError(Message("must be greater than zero, not {value!r}", value=value))
    if number > most:  # more than any machine has, and the kernel's numbers are limited
        raise ValueError(Message("is too large; the maximum is {maximum}", maximum=most))
    return number


LEAST_MEMORY = 8 * 2**20


def memory(value: object) -> int:
    """A size in bytes that is enough for a program to start. Raises ValueError with the minimum."""
    given = size(value)
    if given < LEAST_MEMORY:
        raise ValueError(Message("{given} bytes are too few for a program to start; the minimum is 8m", given=given))
    return given


LARGEST_SCREEN = (3840, 2160)


def screen_size(value: object) -> str:
    """The size of a screen, as "1280x800". Raises ValueError with the limits."""
    width, times, height = (value if isinstance(value, str) else "").lower().partition("x")
    if times and width.isdecimal() and height.isdecimal() and len(width) < 6 and len(height) < 6:
        wide, high = int(width), int(height)
        if 64 <= wide <= LARGEST_SCREEN[0] and 64 <= high <= LARGEST_SCREEN[1]:
            return f"{wide}x{high}"
    raise ValueError(Message("must be a size from 64x64 to 3840x2160, not {value!r}", value=value))


def port(value: object) -> int:
    """A TCP port, or 0 for any. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65535:
        raise ValueError(Message("must be a port, 0 to 65535, not {value!r}", value=value))
    return value
