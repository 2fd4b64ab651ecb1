"""Parameters of the JSON-RPC method `create`. Sections that it shares with our model pass unchanged."""

from __future__ import annotations

from sandbox.config.dialects.table import Translated
from sandbox.config.dialects.table import translate as by_table
from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def _megabytes(value: object) -> dict[str, Any]:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError("must be a whole number of megabytes, not {value!r}", value=value)
    return {"limits.memory": value * 2**20}


_FOREIGN: Mapping[str, Any] = {
    "resources.cpus": "limits.cpus",
    "resources.memory_mb": _megabytes,
    "resources.timeout_seconds": "limits.timeout",
    "env": "environment.set",
}


def spoken(data: Mapping[str, Any]) -> bool:
    """Whether `data` has a key that only this dialect has."""
    return "resources" in data or "env" in data


def translate(data: Mapping[str, Any]) -> Translated:
    """`create`'s parameters in our spelling."""
    foreign = {key: value for key, value in data.items() if key in ("resources", "env")}
    into = by_table(foreign, _FOREIGN)
    for section, settings in data.items():
        if section in foreign:
            continue
        if isinstance(settings, dict) and isinstance(into.data.get(section), dict):
            into.data[section] = {**into.data[section], **settings}
        else:
            into.data[section] = settings
    return into
