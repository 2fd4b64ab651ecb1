"""Checks directories of a home that a configuration names: no path may lead out of the home."""

from __future__ import annotations

from sandbox.errors import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_LONGEST = 64


def plain_name(text: str) -> bool:
    """Whether `text` is a file's name and nothing else: no separator, not hidden, nothing a terminal would act on."""
    return 0 < len(text) <= _LONGEST and _PLAIN.issuperset(text) and text[0] not in ".-"


def state_name(value: Any) -> str:
    """A name that a single directory can have. Raises ValueError."""
    if not isinstance(value, str) or not plain_name(value):
        raise ValueError(Message("{value!r} is not a name of letters, digits, `-`, `_` and `.`", value=value))
    return value


def home_directory(value: Any) -> str | None:
    """A directory in /home, by a plain name. Raises ValueError."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.startswith("/home/") or not plain_name(value.removeprefix("/home/")):
        raise ValueError(Message("{value!r} is not a directory in /home, such as /home/user", value=value))
    return value


def state_paths(value: Any) -> list[str]:
    """Directories relative to the home; a leading `~/` is removed. Raises ValueError."""
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(Message("must be a list of directories, not {value!r}", value=value))
    return [home_path(one) for one in value]


def project_names(value: Any) -> list[str]:
    """Dot directories at the top of the project. Raises ValueError."""
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(Message("must be a list of directories, not {value!r}", value=value))
    names = [one.rstrip("/") for one in value]
    for name in names:
        # The repository stays in the project: commits must arrive there.
        if not (name.startswith(".") and plain_name(name[1:])) or name.lower() == ".git":
            raise ValueError(Message("{name!r} is not a dot directory of the project, such as `.tool`", name=name))
    return names


def home_path(path: str) -> str:
    """A path relative to the home; "." is the home itself. Raises ValueError for one that leads elsewhere."""
    found = path.removeprefix("~/").rstrip("/") or "."
    if found != "." and ("\0" in found or any(part in ("", ".", "..", "~") for part in found.split("/"))):
        raise ValueError(Message("{path!r} is not a path below the home", path=path))
    return found
