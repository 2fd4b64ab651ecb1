"""Keys in the person's variables, as secrets of the configuration. (Until `credentials` puts them in by itself.)"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def secrets_of(credentials: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The secrets whose variables are set."""
    found = {}
    for entry in credentials.values():
        for variable, secret in entry.get("variables", {}).items():
            if environment.get(variable):
                found[variable] = {"from_env": variable, **secret}
    return found
