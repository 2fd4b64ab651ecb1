"""Completes the entries of `credentials` with what they take from ready-made ones (`credentials.yaml`).

`python -m sandbox.config.credential_entries` writes the ready-made entries to `credentials.json`, which is what we read
at run time: reading YAML would take longer than building the sandbox. A test keeps the two in step.
"""

from __future__ import annotations

import os

from sandbox.config.model import Credential
from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

WRITTEN = os.path.join(os.path.dirname(__file__), "credentials.yaml")
READY = os.path.join(os.path.dirname(__file__), "credentials.json")


def ready_made() -> dict[str, dict[str, Any]]:
    """The entries that ship with the package, as plain data by name."""
    import json

    with open(READY, encoding="utf-8") as file:
        found: dict[str, dict[str, Any]] = json.load(file)
    return found


def text() -> str:
    """What `credentials.json` holds."""
    import json

    import yaml

    with open(WRITTEN, encoding="utf-8") as file:
        return json.dumps(yaml.safe_load(file), separators=(",", ":")) + "\n"


def complete(entries: Mapping[str, Credential]) -> dict[str, Credential]:
    """`entries` with everything they take from ready-made ones. Raises ConfigError for an unknown name or a mistake."""
    ready = ready_made() if any(_based_on(name, one) for name, one in entries.items()) else {}
    return {name: _completed(name, one, ready) for name, one in entries.items()}


def _based_on(name: str, entry: Credential) -> str | None:
    """The ready-made entry that this one changes: the one in `use`, or the one of the same name if it is empty."""
    if entry.use is None and entry.file is None and not entry.variables:
        return name
    return entry.use


def _completed(name: str, entry: Credential, ready: Mapping[str, Any]) -> Credential:
    path = f"credentials.{name}"
    base = _based_on(name, entry)
    if base is not None:
        if base not in ready:
            raise ConfigError(
                "there is no ready-made credential {name!r}; known: {known}",
                name=base,
                known=", ".join(sorted(ready)),
                path=f"{path}.use" if entry.use else path,
            )
        # A setting that differs from its default was set by the user.
        said = {key: value for key, value in entry.whole().items() if value != Credential().whole()[key]}
        entry = Credential.read(ready[base], path).changed(said, path)
    for variable, secret in entry.variables.items():
        if all(getattr(secret, source) is None for source in SOURCES):
            secret.from_env = variable
        if not secret.hosts:
            raise ConfigError(
                "does not say which hosts it may be sent to: add `hosts`", path=f"{path}.variables.{variable}"
            )
    return entry


SOURCES = ("value", "from_env", "from_file", "from_command", "from_keyring")


if __name__ == "__main__":
    with open(READY, "w", encoding="utf-8") as file:
        file.write(text())
