"""How the names of containers begin."""

from __future__ import annotations

import re

from sandbox.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")  # what Docker and Podman take


def checked(value: object) -> str:
    """The beginning of a container's name. Raises ConfigError."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ConfigError(
            "must be letters, digits, `_`, `.` and `-`, 63 at most, and begin with a letter or digit, not {value!r}",
            value=value,
        )
    return value
