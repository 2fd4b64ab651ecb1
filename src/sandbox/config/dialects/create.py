"""Parameters of the JSON-RPC method `create`. Sections that it shares with our model pass unchanged."""

from __future__ import annotations

from sandbox.config.dialects.table import Translated, joined
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
    into.data = joined(into.data, {key: value for key, value in data.items() if key not in foreign})
    return into
