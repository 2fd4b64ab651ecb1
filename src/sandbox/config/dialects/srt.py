"""Settings of Anthropic's sandbox-runtime (`srt`), of its first versions and of today's.

Two differences, both stricter. srt lets programs read everything that `denyRead` does not name; here
nothing outside the project and the system is visible until `allowRead` (or `allowWrite`) names it. And /tmp
is always the sandbox's own, so naming it changes nothing.
"""

from __future__ import annotations

from sandbox.config.dialects.table import ALWAYS, Translated, boolean, refused, text_list
from sandbox.config.dialects.table import translate as by_table
from sandbox.config.model import SENSITIVE_PATTERNS
from sandbox.errors import ConfigError, Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_PROJECT = (".", "./", "./**", "**")
_TMP = ("/tmp", "/private/tmp", "/var/tmp")


def _allowed_domains(value: object) -> dict[str, Any]:
    for pattern in text_list(value):
        if pattern.removeprefix("tcp:").split(":")[0] == "*":
            raise ConfigError("{pattern!r} is too broad; to allow every host, use allowAllDomains", pattern=pattern)
    return {"network.allowed_hosts": value}


def _all_domains(value: object) -> dict[str, Any]:
    return {"network.allowed_hosts": ["*"]} if boolean(value) else {}


def _deny_read(value: object) -> dict[str, Any]:
    globs = [path for path in text_list(value) if any(sign in path for sign in "*?[")]
    found: dict[str, Any] = {"filesystem.deny_read": [path for path in text_list(value) if path not in globs]}
    if globs:
        found["filesystem.blocked_patterns"] = [*SENSITIVE_PATTERNS, *globs]
    return found


def _allow_write(value: object) -> dict[str, Any]:
    paths = [path.rstrip("/") or "/" for path in text_list(value)]
    others = [path for path in paths if path not in _PROJECT and path not in _TMP]
    # What srt does not name cannot be written, not even the project.
    return {
        "filesystem.read_only": not any(path in _PROJECT for path in paths),
        "filesystem.allow_write": others,
    }


def _local_binding(value: object) -> dict[str, Any]:
    return {"network.allow_localhost": True} if boolean(value) else {}  # the sandbox has its own loopback


def _proxy_port(value: object) -> dict[str, Any]:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65536:
        raise ConfigError("must be a port, not {value!r}", value=value)
    return {"network.upstream_proxy": f"http://127.0.0.1:{value}"}


def _terminate(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError("must be a mapping")
    for key in value:
        if key != "extraCaCertPaths":
            raise ConfigError("{key!r} is not supported: the gate makes its own certificate authority", key=key)
    return {
        "network.intercept": True,
        "network.ca_certificates": text_list(value.get("extraCaCertPaths", [])),
    }


def _credential_files(value: object) -> dict[str, Any]:
    for entry in _entries(value):
        if entry.get("mode") != "deny" or not isinstance(entry.get("path"), str):
            raise ConfigError("only mode deny is supported for files; for a masked credential, use network.secrets")
    return {"filesystem.deny_read": [entry["path"] for entry in _entries(value)]}


def _credential_variables(value: object) -> dict[str, Any]:
    blocked, secrets, placeholders = [], {}, {}
    for entry in _entries(value):
        name = entry.get("name")
        unknown = set(entry) - {"name", "mode", "injectHosts"}
        if not isinstance(name, str) or unknown:
            if unknown:
                raise ConfigError("unknown keys: {keys}", keys=", ".join(sorted(unknown)))
            raise ConfigError("an entry needs a name")
        if entry.get("mode") == "mask":
            # No list of hosts means every allowed one; see translate().
            secrets[name] = {"from_env": name, "hosts": entry.get("injectHosts")}
            placeholders[name] = f"${{{name}}}"
        elif entry.get("mode") == "deny":
            blocked.append(name)
        else:
            raise ConfigError("mode must be deny or mask, not {mode!r}", mode=entry.get("mode"))
    return {"environment.block": blocked, "network.secrets": secrets, "environment.set": placeholders}


def _entries(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ConfigError("must be a list of mappings")
    return value


TABLE: Mapping[str, Any] = {
    "network.allowedDomains": _allowed_domains,
    "network.deniedDomains": "network.denied_hosts",
    "network.allowAllDomains": _all_domains,
    "network.allowLocalBinding": _local_binding,
    "network.httpProxyPort": _proxy_port,
    "network.socksProxyPort": refused(Message("an upstream SOCKS proxy is not supported; use httpProxyPort")),
    "network.parentProxy.http": "network.upstream_proxy",
    "network.parentProxy.https": "network.upstream_proxy",
    "network.parentProxy.noProxy": refused(Message("exceptions to the upstream proxy are not supported")),
    "network.tlsTerminate": _terminate,
    "network.mitmProxy": refused(Message("the gate intercepts connections itself: use network.policy_script or hooks")),
    "network.filterRequest": refused(
        Message("a settings file cannot contain a function: use network.policy_script or hooks")
    ),
    "network.strictAllowlist": ALWAYS,
    "network.deniedDomainReasons": ALWAYS,
    "filesystem.denyRead": _deny_read,
    "filesystem.allowRead": "filesystem.allow_read",
    "filesystem.allowWrite": _allow_write,
    "filesystem.denyWrite": "filesystem.deny_write",
    "filesystem.disabled": refused(Message("a settings file cannot disable the walls; use mode off")),
    "filesystem.allowGitConfig": refused(
        Message(".git/config stays read-only: it can make git run programs on the host")
    ),
    "credentials.files": _credential_files,
    "credentials.envVars": _credential_variables,
    "credentials.allowPlaintextInject": refused(Message("a secret is only sent over a verified TLS connection")),
    "credentials.awsPairs": refused(Message("signing AWS requests is not supported")),
    "credentials.sigv4": refused(Message("signing AWS requests is not supported")),
    # Settings that weaken srt's isolation, or tune programs that we do not use.
    "network.allowUnixSockets": ALWAYS,
    "network.allowAllUnixSockets": ALWAYS,
    "network.allowMachLookup": ALWAYS,
    "ignoreViolations": ALWAYS,
    "enableWeakerNestedSandbox": ALWAYS,
    "enableWeakerNetworkIsolation": ALWAYS,
    "allowAppleEvents": ALWAYS,
    "allowPty": ALWAYS,
    "ripgrep": ALWAYS,
    "mandatoryDenySearchDepth": ALWAYS,
    "seccomp": ALWAYS,
    "bwrapPath": ALWAYS,
    "socatPath": ALWAYS,
    "windows": ALWAYS,
    "git.safeDirectories": ALWAYS,
}


def translate(data: Mapping[str, Any]) -> Translated:
    """srt's settings in our spelling."""
    into = by_table(data, TABLE)
    filesystem = into.data.setdefault("filesystem", {})
    filesystem.setdefault("read_only", True)
    network = into.data.get("network", {})
    for secret in network.get("secrets", {}).values():
        if secret["hosts"] is None:
            hosts = network.get("allowed_hosts", [])
            secret["hosts"] = [host for host in hosts if host != "*" and not host.startswith("tcp:")]
    return into
