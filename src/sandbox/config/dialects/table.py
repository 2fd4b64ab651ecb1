"""A dialect is a table: the foreign key, and where it goes in our model.

    {"filesystem.blocked-patterns": "filesystem.blocked_patterns",   # moved as it is
     "resources.memory_mb": megabytes,                                # a function: value -> {our path: value}
     "capDrop": ALWAYS}                                               # known; our walls already do it, or more

A key that the table does not know is an error, as everywhere else.
"""

from __future__ import annotations

from sandbox.config.section import unknown_key
from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Rule = str | Callable[[Any], Mapping[str, Any]]


# No host of the network: the three settings that each allow some on their own.
NO_HOSTS: Mapping[str, Any] = {"network.allowed_hosts": [], "network.preset": "closed", "network.http.allow": []}


def ALWAYS(_: object) -> dict[str, Any]:
    """For settings that our isolation always applies, and for those that only weaken the other product's isolation."""
    return {}


class Translated:
    """`data` in our spelling, and for each of our paths the foreign one, so that errors name the user's line."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.spelled: dict[str, str] = {}
        self.without_effect: list[str] = []  # foreign settings that say otherwise than our walls always do
        self.masked: list[dict[str, Any]] = []  # srt: texts with secrets in them; see `network/credentials/masks.py`

    def put(self, path: str, value: object, foreign: str) -> None:
        """Sets one of our settings. Two foreign keys may feed one list or mapping."""
        into = self.data
        *sections, last = path.split(".")
        for name in sections:
            into = into.setdefault(name, {})
        if isinstance(value, list) and isinstance(into.get(last), list):
            value = [*into[last], *value]
        if isinstance(value, dict) and isinstance(into.get(last), dict):
            value = {**into[last], **value}
        into[last] = value
        self.spelled.setdefault(path, foreign)


def translate(data: Mapping[str, Any], table: Mapping[str, Rule]) -> Translated:
    """Translates foreign settings to ours. Raises ConfigError with the foreign path."""
    into = Translated()
    _translate(data, table, "", into)
    return into


def _translate(data: Mapping[str, Any], table: Mapping[str, Rule], prefix: str, into: Translated) -> None:
    for key, value in data.items():
        path = f"{prefix}{key}"
        rule = table.get(path)
        if rule is not None:
            try:
                moved = {rule: value} if isinstance(rule, str) else rule(value)
            except ConfigError as problem:
                raise ConfigError(problem.problem, path=".".join(filter(None, (path, problem.path)))) from None
            for ours, translated in moved.items():
                into.put(ours, translated, path)
        elif any(known.startswith(f"{path}.") for known in table):
            if not isinstance(value, dict):
                raise ConfigError("must be a mapping", path=path)
            _translate(value, table, f"{path}.", into)
        else:
            known = {name[len(prefix) :].split(".")[0]: None for name in table if name.startswith(prefix)}
            raise unknown_key(str(key), known, prefix.rstrip("."))


def joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from two places. Neither one's mappings and lists are lost; of two other values, the second's counts."""
    found = dict(first)
    for name, value in second.items():
        before = found.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            found[name] = joined(before, value)
        elif isinstance(value, list) and isinstance(before, list):
            found[name] = [*before, *(item for item in value if item not in before)]
        else:
            found[name] = value
    return found


def refused(why: str) -> Callable[[object], dict[str, Any]]:
    """For a key that we do not support: an error unless it is switched off."""

    def rule(value: object) -> dict[str, Any]:
        if value in (None, False, [], {}, ""):
            return {}
        raise ConfigError(why)

    return rule


def text_list(value: object) -> list[str]:
    """A list of strings. Raises ConfigError."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError("must be a list of strings")
    return value


def entries(value: object) -> list[dict[str, Any]]:
    """A list of mappings. Raises ConfigError."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ConfigError("must be a list of mappings")
    return value


def boolean(value: object) -> bool:
    """True or false. Raises ConfigError."""
    if not isinstance(value, bool):
        raise ConfigError("must be true or false")
    return value
