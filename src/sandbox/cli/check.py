"""Checks whether a sandbox could start with a configuration, before anything is written.

Reading a file checks spelling and types. Only the part that uses a host, a rule, a path or an engine can check it, so
the same code does that here, with nothing started.
"""

from __future__ import annotations

import os

from sandbox.errors import ConfigError, message_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.config.model import Config, Credential, Network


def check(config: Config, *, everywhere: bool) -> None:
    """Raises the error that a run would raise. `everywhere`: for all projects, so relative paths are unknown."""
    from sandbox.engines.choose import choose
    from sandbox.engines.require import require
    from sandbox.policy.tools import ToolGuard
    from sandbox.vfs.arrange import arrange

    _check_network(config.network)
    _check_credentials(config.credentials)
    require(config, choose(config))
    try:
        ToolGuard(config.tools, root=os.path.abspath(config.filesystem.root))
    except ValueError as problem:
        raise ConfigError(message_of(problem), path="tools") from None
    for name in config.environment.set:
        if not name or "=" in name or "\0" in name:
            raise ConfigError("{name!r} is not a valid variable name", name=name, path="environment.set")
    arrange(config.vfs)
    _check_paths(config, everywhere)


def _check_network(network: Network) -> None:
    from sandbox.network.gate.dialer import ProxyAddress
    from sandbox.network.gate.publish import Published
    from sandbox.network.secrets.placeholders import placeholders
    from sandbox.policy.network import NetworkPolicy

    NetworkPolicy(network)
    for entry in network.publish:
        Published(entry)
    placeholders(network.secrets)  # without their sources: a secret is set key by key
    for port in network.localhost_ports:
        if not 0 < port < 65536:
            raise ConfigError("{port} is not a port", port=port, path="network.localhost_ports")
    if network.upstream_proxy is not None:
        ProxyAddress(network.upstream_proxy)
    files = [("ca_certificates", one) for one in network.ca_certificates]
    files += [("policy_script", network.policy_script)] if network.policy_script else []
    for key, file in files:
        if not os.path.isfile(os.path.expanduser(file)):
            raise ConfigError("{name!r} does not exist", name=file, path=f"network.{key}")


def _check_credentials(entries: Mapping[str, Credential]) -> None:
    """Checks what does not depend on the user's own files."""
    if not entries:
        return
    from sandbox.config.credential_entries import complete
    from sandbox.policy.hosts import HostSet

    for name, entry in complete(entries).items():
        path = f"credentials.{name}"
        HostSet(entry.refresh.hosts, f"{path}.refresh.hosts")
        HostSet(entry.git, f"{path}.git")
        for where, field in entry.tokens.items():
            hosts = [one.replace("{host}", "host.example") for one in field.hosts]
            HostSet(hosts, f"{path}.fields.{where}.hosts", near_secret=True)
        for variable, secret in entry.variables.items():
            HostSet(secret.hosts, f"{path}.variables.{variable}.hosts", near_secret=True)


def _check_paths(config: Config, everywhere: bool) -> None:
    from sandbox.layout.paths import further_paths, project_root
    from sandbox.plan.plan import Plan

    filesystem = config.copy().filesystem
    plan = Plan()
    if not everywhere:
        plan.directory = project_root(filesystem)
    else:
        filesystem.allow_read = [path for path in filesystem.allow_read if path.startswith(("/", "~"))]
        filesystem.allow_write = [path for path in filesystem.allow_write if path.startswith(("/", "~"))]
    further_paths(plan, filesystem)
