"""The arguments of `exec` and its relatives, checked in one place: the same mistake gets the same answer everywhere."""

from __future__ import annotations

import os

from sandbox.errors import InvalidArgument, Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Path = str | os.PathLike[str]
    Command = str | Sequence[str | bytes | os.PathLike[str]]

LONGEST = 1e9  # seconds: a longer timeout is as good as none, and would overflow the guest's numbers


def words(command: Command) -> str | list[str | bytes]:
    """A shell's command line, or a list of arguments. Raises InvalidArgument."""
    if isinstance(command, str):
        found: list[str | bytes] = [command]
    elif isinstance(command, bytes | bytearray) or not hasattr(command, "__iter__"):
        raise InvalidArgument(
            "a command must be text for the shell or a list of arguments, not {type}", type=type(command).__name__
        )
    else:
        found = [_word(one) for one in command]
    if not found or not found[0]:
        raise InvalidArgument("the command is empty")
    if any(("\0" if isinstance(one, str) else b"\0") in one for one in found):  # type: ignore[operator]
        raise InvalidArgument("a command cannot contain a NUL character")
    return command if isinstance(command, str) else found


def _word(one: object) -> str | bytes:
    if isinstance(one, str | bytes):
        return one
    if isinstance(one, os.PathLike):
        return str(os.fspath(one))
    raise InvalidArgument("a command's arguments must be text or bytes, not {one!r}", one=one)


def name(command: Command) -> str:
    """The program, for messages about a command that failed; its arguments may hold secrets."""
    if isinstance(command, str):
        return Message("the command")
    return os.fsdecode(next(iter(command)))


def directory(working_dir: Path | None, cwd: Path | None) -> str | None:
    """Where the command starts: `cwd` is another name of `working_dir`. Raises InvalidArgument when both are given."""
    if working_dir is not None and cwd is not None:
        raise InvalidArgument("working_dir and cwd are the same: give one of them")
    chosen = cwd if working_dir is None else working_dir
    if chosen is not None and "\0" in os.fsdecode(chosen):
        raise InvalidArgument("a directory cannot contain a NUL character")
    return None if chosen is None else os.fspath(chosen)


def seconds(timeout: float | None, name: str = "timeout") -> float | None:
    """A number of seconds above 0. Raises InvalidArgument."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise InvalidArgument("{name} must be a number of seconds, not {given!r}", name=name, given=timeout)
    if not timeout > 0:  # written so that it also refuses NaN
        raise InvalidArgument("{name} must be more than 0 seconds, not {given!r}", name=name, given=timeout)
    return min(float(timeout), LONGEST)


def variables(env: Mapping[str, str] | None) -> dict[str, str]:
    """Variables for one command. Raises InvalidArgument, naming the variable."""
    found: dict[str, str] = {}
    for name, value in (env or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgument(
                "env: {name!r} must be text and have text as its value, not {value!r}", name=name, value=value
            )
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise InvalidArgument("env: {name!r} has an invalid name or value", name=name)
        found[name] = value
    return found


def whole_input(input: bytes | str | None, stdin: bytes | str | None) -> bytes | None:
    """What the command reads: `stdin` is another name of `input`. None is no input. Raises InvalidArgument."""
    if input is not None and stdin is not None:
        raise InvalidArgument("input and stdin are the same: give one of them")
    given = stdin if input is None else input
    if isinstance(given, str):
        return given.encode()
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise InvalidArgument("input must be text or bytes, not {type}", type=type(given).__name__)


def size(pty: tuple[int, int] | None) -> tuple[int, int] | None:
    """A terminal's rows and columns. Raises InvalidArgument."""
    if pty is None:
        return None
    try:
        rows, columns = pty
    except (TypeError, ValueError):
        raise InvalidArgument("pty must be a pair of numbers, rows and columns, not {pty!r}", pty=pty) from None
    if not all(isinstance(one, int) and 1 <= one <= 10_000 for one in (rows, columns)):
        raise InvalidArgument("pty: rows and columns must be numbers from 1 to 10000, not {pty!r}", pty=pty)
    return rows, columns


def kept_name(keep: str | None) -> str | None:
    """The name a command is kept under. Raises InvalidArgument."""
    allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
    if keep is not None and not (isinstance(keep, str) and 1 <= len(keep) <= 64 and set(keep) <= set(allowed)):
        raise InvalidArgument(
            "keep must be a name of at most 64 letters, digits, '_', '.' and '-', not {keep!r}", keep=keep
        )
    return keep
