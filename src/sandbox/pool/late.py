"""What a pool gives a sandbox when it is handed out: variables, secrets, its lifetime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandbox import arguments
from sandbox.config.model import Config, Environment
from sandbox.config.section import owned
from sandbox.errors import ConfigError
from sandbox.serving import with_placeholders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.config.from_program import Given
    from sandbox.sandbox import Sandbox


def checked(environment: Mapping[str, str] | None) -> dict[str, str]:
    """The variables. Raises InvalidArgument, ConfigError."""
    given = arguments.variables(environment)
    return Environment.read({"set": given}, "environment").set


def give(sandbox: Sandbox, secrets: Mapping[str, Any] | None, environment: Mapping[str, str]) -> None:
    """Gives a running sandbox what it can still get. Raises ConfigError; then the caller must close the sandbox."""
    limits = sandbox.config.limits
    if limits.lifetime is not None or limits.idle_timeout is not None:
        sandbox._lifetime.set(limits.lifetime, limits.idle_timeout)
    held: dict[str, str] = {}
    if secrets:
        if sandbox._can.gate == "none":
            raise ConfigError("needs a gate, which this engine does not have", path="network.secrets")
        sandbox.update_network({"secrets": dict(secrets)})
        held = sandbox._gate_thread.take_secrets(sandbox._plan)
    if environment:
        sandbox.config.environment = sandbox.config.environment.changed({"set": dict(environment)}, "environment")
        sandbox._plan.environment.update(environment)
    if held:
        sandbox._plan.environment.update(with_placeholders(sandbox.config.environment.set, held))
    if secrets or environment:
        handed_out(sandbox, {"secrets": bool(secrets), "environment": bool(environment)})


def handed_out(sandbox: Sandbox, given: Mapping[str, bool]) -> None:
    """Puts on the record what it was given; never the values."""
    what = ", ".join(name for name, is_given in given.items() if is_given)
    sandbox.record.write("sandbox_lifecycle", "handed out by a pool", metadata={"given": what})


def complete(config: Given, root: str, secrets: Mapping[str, Any] | None, environment: Mapping[str, str]) -> Given:
    """The pool's configuration, completed for one sandbox. Raises ConfigError."""
    if isinstance(config, Config):
        made = config.copy()
        made.filesystem.root = root
        made.network = made.network.changed({"secrets": dict(secrets or {})}, "network")
        made.environment = made.environment.changed({"set": dict(environment)}, "environment")
        return made
    whole: dict[str, Any] = dict(owned(config) or {})
    for section, key, value in (
        ("filesystem", "root", root),
        ("network", "secrets", dict(secrets or {})),
        ("environment", "set", dict(environment)),
    ):
        there = dict(whole.get(section) or {})
        there[key] = {**(there.get(key) or {}), **value} if isinstance(value, dict) else value
        if value:
            whole[section] = there
    return whole
