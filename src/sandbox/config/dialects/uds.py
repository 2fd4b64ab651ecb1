"""The `sandbox:` block of `.uds/config.yaml`. We ignore the other blocks of that file."""

from __future__ import annotations

from sandbox.config.dialects.table import NO_HOSTS, Translated, boolean
from sandbox.config.dialects.table import translate as by_table
from sandbox.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def _external(value: object) -> Mapping[str, Any]:
    return {"network.allowed_hosts": ["*"]} if boolean(value) else NO_HOSTS


TABLE: Mapping[str, Any] = {
    "enabled": "enabled",
    "filesystem.root": "filesystem.root",
    "filesystem.blocked-patterns": "filesystem.blocked_patterns",
    "filesystem.allowed-patterns": "filesystem.allowed_patterns",
    "environment.filter-secrets": "environment.filter_secrets",
    "environment.allow": "environment.allow",
    "environment.block": "environment.block",
    "network.allow-external": _external,
    "network.allow-localhost": "network.allow_localhost",
    "network.allow-git": "network.allow_git",
    "tools.enforce-agent-permissions": "tools.enforce_agent_permissions",
}


def translate(data: Mapping[str, Any]) -> Translated:
    """The file's `sandbox:` block; empty when it has none."""
    block = data.get("sandbox")
    if block is None:
        return Translated()
    if not isinstance(block, dict):
        raise ConfigError("must be a mapping", path="sandbox")
    try:
        into = by_table(block, TABLE)
    except ConfigError as problem:
        told = ConfigError(problem.problem, path=f"sandbox.{problem.path}".rstrip("."))
        told.at = f"sandbox.{problem.at}"
        raise told from None
    into.spelled = {ours: f"sandbox.{foreign}" for ours, foreign in into.spelled.items()}
    network = into.data.get("network", {})
    # The block has no list of hosts. "Nothing external, but git" therefore leaves the list to the user:
    # with an empty list, git could not connect anywhere.
    if network.get("allow_git") is True and network.get("allowed_hosts") == []:
        for name in ("allowed_hosts", "preset", "http"):
            del network[name]
    return into
