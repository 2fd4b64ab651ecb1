"""What a guest may answer to a file operation. No answer is used before it has been checked."""

from __future__ import annotations

from sandbox.errors import GuestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_MODE = 0o177777
_SIZE = 2**63 - 1


def check(
    operation: str, answer: dict[str, Any], fds: Sequence[int], most: object = None, below: object = False
) -> None:
    """Raises GuestError unless `answer` carries what `operation` promises. `most` is how many bytes were asked for;
    `below` says that the attributes are those of the files in a directory."""
    right = len(fds) == (operation == "open")
    if operation == "stat":
        right = right and _describes(answer.get("mode"), answer.get("size"), answer.get("mtime_ns"))
    elif operation == "list":
        entries = answer.get("entries")
        right = right and isinstance(entries, list) and all(map(_is_entry, entries))
    elif operation == "readlink":
        right = right and isinstance(answer.get("target"), bytes)
    elif operation == "attributes":
        found = answer.get("attributes")
        right = right and isinstance(found, list) and all(map(_is_file if below else _is_attribute, found))
    elif operation == "read":
        data = answer.get("data")
        right = right and isinstance(data, bytes) and isinstance(most, int) and len(data) <= most
    if not right:
        raise GuestError("the guest's answer to {operation!r} makes no sense", operation=operation)


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, list) or len(entry) != 4 or not isinstance(entry[0], bytes):
        return False
    name = entry[0]
    return b"/" not in name and b"\0" not in name and name not in (b"", b".", b"..") and _describes(*entry[1:])


def _is_attribute(pair: object) -> bool:
    """[name, value]."""
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, bytes) for one in pair)


def _is_file(pair: object) -> bool:
    """[file, [[name, value], …]], for a file in a directory."""
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], bytes) or not isinstance(pair[1], list):
        return False
    return all(map(_is_attribute, pair[1]))


def _describes(mode: object, size: object, mtime_ns: object) -> bool:
    return _within(mode, 0, _MODE) and _within(size, 0, _SIZE) and type(mtime_ns) is int


def _within(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most
