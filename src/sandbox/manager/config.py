"""The specification's SandboxManagerConfig as our configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sandbox.config.dialects.manager import translate
from sandbox.config.model import Config
from sandbox.config.paths import absolute
from sandbox.errors import ConfigError
from sandbox.layout.etc import tenant

if TYPE_CHECKING:
    from collections.abc import Mapping


# A managed sandbox lives long, so mode `standard` bounds open files per process. (`Sandbox` itself bounds processes.)
STANDARD_OPEN_FILES = 16384


def read(config: Mapping[str, Any] | Config) -> Config:
    """The configuration as a `Config` that the caller may change. Raises ConfigError with the field's own name."""
    found = config.copy() if isinstance(config, Config) else Config.read(spelled(config))
    found.filesystem.root = absolute(found.filesystem.root, os.getcwd())
    return found


def in_force(config: Config) -> Config:
    """The configuration to start a sandbox with: adds the limits of mode `standard` where none are set."""
    if config.mode != "standard" or config.limits.open_files is not None:
        return config
    limited = config.copy()
    limited.limits.open_files = STANDARD_OPEN_FILES
    return limited


def spelled(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings in our spelling. Raises ConfigError with the field's own name."""
    translated = translate(config)
    try:
        Config.read(translated.data)
    except ConfigError as problem:
        path = next((known for ours, known in translated.spelled.items() if problem.path.startswith(ours)), None)
        raise ConfigError(problem.problem, path=path or problem.path) from None
    return translated.data


NO_EFFECT = {
    "readOnlyRoot": "readOnlyRoot: false has no effect: the root is always read-only",
    "user": "user: that number or name has no effect: whoever is not root is the ordinary user inside",
}


def without_effect(config: Mapping[str, Any] | Config) -> list[str]:
    """What was asked for and is never so here, for the manager's events. Raises ConfigError."""
    if isinstance(config, Config):
        return []
    translated = translate(config)
    fields = list(translated.without_effect)
    if translated.data.get("user") == "user" and not _is_ordinary(config["user"]):
        fields.append("user")
    return [NO_EFFECT[field] for field in fields]


def _is_ordinary(asked: str) -> bool:
    """Whether that is who commands run as in any case: `uid`, `uid:gid` or a name."""
    name, uid, gid = tenant("user")
    whose, _, group = asked.partition(":")
    return whose in (name, str(uid)) and group in ("", name, str(gid))


def with_mode(config: Config, mode: str) -> Config:
    """The same configuration in another mode. Raises ConfigError."""
    changed = config.copy()
    changed.mode = Config.read({"mode": mode}).mode
    return changed
