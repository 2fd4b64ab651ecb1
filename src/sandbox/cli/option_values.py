"""What an option of the command line says, or why it cannot be understood."""

from __future__ import annotations

from sandbox.errors import InvalidArgument, message_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    N = TypeVar("N", int, float)


def given(option: str, read: Callable[[str], N], text: str) -> N:
    """An option's value. Raises InvalidArgument."""
    try:
        return read(text)
    except ValueError as problem:
        raise InvalidArgument("{option}: {problem}", option=option, problem=message_of(problem)) from None
