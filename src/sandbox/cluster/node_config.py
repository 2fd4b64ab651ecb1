"""Which parts of a configuration go to a node, and which are read here first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandbox.client import gate_at_home
from sandbox.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.config.layers import Resolved

# Settings about this machine alone: its files, its loopback, its own record. A node has its own.
AT_HOME = frozenset(
    (
        "cluster", "filesystem.root", "filesystem.overlay", "network.publish", "network.localhost_ports",
        "network.allow_localhost", "network.unix_sockets", "environment.allow",
    )
)  # fmt: skip
SECTIONS_AT_HOME = frozenset(
    ("agents", "audit", "browser", "caches", "credentials", "signing", "state", "tools", "ui", "vfs")
)
HIDING = ("deny_read", "blocked_patterns", "allowed_patterns")


def travelling(resolved: Resolved, environment: Mapping[str, str]) -> dict[str, Any]:
    """What `sandbox run` sends: the settings that any layer made, without those about this machine.

    The variables that `environment.allow` names are taken from `environment`, this process's own.
    """
    whole = resolved.config.whole()
    given: dict[str, Any] = {}
    for path in resolved.sources:
        section = path.partition(".")[0]
        if path not in AT_HOME and section not in SECTIONS_AT_HOME:
            _put(given, path, _got(whole, path))
    passed = allowed(resolved.config.environment, environment)
    if passed:
        section_given = given.setdefault("environment", {})
        section_given["set"] = {**passed, **section_given.get("set", {})}
    return given


def allowed(section: Any, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that the configuration passes on by name."""
    from sandbox.config.variables import Names

    wanted, blocked = Names(section.allow), Names(section.block)
    return {name: value for name, value in environment.items() if wanted.match(name) and not blocked.match(name)}


def hiding(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that hide files of a project: such files are not sent either."""
    files = config.get("filesystem")
    return {key: files[key] for key in HIDING if key in files} if isinstance(files, dict) else {}


def with_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the values of its secrets: their sources are on this machine, not on the node. Where the
    gate is at home, they stay there.

    A source that is a program runs once; a node cannot run it again when the value expires. Raises ConfigError.
    """
    network = config.get("network")
    secrets = network.get("secrets") if isinstance(network, dict) else None
    if not isinstance(network, dict) or not isinstance(secrets, dict) or gate_at_home(config):
        return dict(config)
    filled = {name: _with_value(name, one) for name, one in secrets.items()}
    return {**config, "network": {**network, "secrets": filled}}


def _with_value(name: str, given: Any) -> Any:
    from sandbox.config.model import Secret
    from sandbox.network.secrets.sources import SOURCES, check, read

    path = f"network.secrets.{name}"
    said = {key: value for key, value in given.items() if value is not None} if isinstance(given, dict) else given
    try:
        secret = Secret.read(said, path)
    except ConfigError:
        return given  # the node will report what is wrong with it
    if secret.value is not None:
        return said
    check(secret, path)
    value, _ = read(secret, path)
    left = {key: one for key, one in said.items() if key not in (*SOURCES, "field", "ttl", "expires")}
    return {**left, "value": value}


def _got(data: Any, path: str) -> Any:
    for name in path.split("."):
        data = data[name]
    return data


def _put(into: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split(".")
    for name in above:
        into = into.setdefault(name, {})
    into[last] = value
