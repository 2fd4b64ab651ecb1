"""Reads a secret's value, and when it expires, from JSON that a file holds or a program prints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sandbox.network.secrets.field_paths import keys_of
from sandbox.network.secrets.missing_value import Missing
from sandbox.network.secrets.parse_time import moment

if TYPE_CHECKING:
    from sandbox.config.model import Secret


def picked(text: str, secret: Secret, path: str) -> tuple[str, float | None]:
    """The field of `text` that the secret names, and when it expires. Raises Missing, which never shows the content."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise Missing("is not JSON", path=path) from None
    end = moment(_at(data, secret.expires)) if secret.expires is not None else None
    if secret.expires is not None and end is None:
        raise Missing("does not say when it ends, where {key} should", key=f"{path}.expires", path=path)
    value = _at(data, secret.json_field) if secret.json_field is not None else None
    if not isinstance(value, str):
        raise Missing("has no string in the field that {key} names", key=f"{path}.field", path=path)
    return value, end


def _at(data: Any, path: str | None) -> Any:
    for key in keys_of(path or ""):
        if isinstance(data, list) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        else:
            data = data.get(key) if isinstance(data, dict) else None
    return data
