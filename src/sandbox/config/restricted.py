"""Settings from somebody who may only ask for less: a remote client without the owner's own rights.

The rules are those for a project's file (`config/tighten.py`), with one difference. For a project, what was ignored is
reported; a client is refused, because it would otherwise believe that it got what it asked for.
"""

from __future__ import annotations

from sandbox.config.layers import Resolved, present
from sandbox.config.model import Config
from sandbox.config.modes import default_limit
from sandbox.config.paths import absolute
from sandbox.config.tighten import tightened
from sandbox.errors import Denied, Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sandbox.config.model import Filesystem
    from sandbox.config.section import Section

RULE = "remote-only-tightens"


def restricted(resolved: Resolved, said: Mapping[str, Any], project: str) -> Config:
    """Returns the owner's configuration, tightened by `said`. Relative paths are relative to `project`.

    Raises Denied for the first setting that would allow more, and ConfigError.
    """
    before = resolved.config
    config = before.copy()
    for path, one, value in present(Config.read(dict(said)), said):
        section: Section = config
        for name in path.split(".")[:-1]:
            section = getattr(section, section.fields[name].name)
        current = getattr(section, one.name)
        wanted = {**current, **value} if isinstance(current, dict) and isinstance(value, dict) else value
        if path in ("filesystem.allow_read", "filesystem.allow_write"):
            wanted = _settled(path, current, value, config.filesystem, project)
        if current is None and wanted is not None and path.startswith("limits."):
            current = default_limit(before.mode, one.name)  # what applies when nothing is set
        taken, widened = tightened(path, current, wanted, before, project)
        if widened:
            raise Denied(RULE, "{path}: {reason}", path=path, reason=widened)
        setattr(section, one.name, taken)
    return config


def tighter_network(shown: Mapping[str, Any], changes: Mapping[str, Any], directory: str) -> dict[str, Any]:
    """Returns the settings to change. A block-list in `changes` is added to the one in force.

    `shown` is the policy in force without its secrets, which no rule lets a client set. Raises Denied, ConfigError.
    """
    known = {key: value for key, value in shown.items() if key not in ("secrets", "policy_secrets")}
    now = Config.read({"network": known})
    before = now.network.plain()
    after = restricted(Resolved(now, {}, []), {"network": changes}, directory).network.plain()
    return {key: value for key, value in after.items() if value != before[key]}


def _settled(path: str, owners: list[str], wanted: list[str], filesystem: Filesystem, project: str) -> list[str]:
    """Resolves paths below the owner's own, so that the real paths are judged and remembered.

    Someone who can write there could replace a part of a path with a link later.
    """
    own = [entry for entry in wanted if entry in owners]
    below = [absolute(entry, project) for entry in wanted if entry not in owners]
    if any(sign in entry for entry in below for sign in "*?["):
        raise Denied(RULE, "{path}: {reason}", path=path, reason=Message("a pattern: name the paths"))
    filesystem.settled += tuple(below)
    return own + below
