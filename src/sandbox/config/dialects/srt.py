"""Settings of Anthropic's sandbox-runtime (`srt`), from its first versions to the current one.

They mean what they mean in srt: everything can be read except what `denyRead` names, nothing can be written except what
`allowWrite` names, and environment variables are passed. Our own key `"strict": true` gives the closed home of
`sandbox run` instead: only the system, the project and named paths exist, and variables that look like secrets are left
out.
"""

from __future__ import annotations

import os

from sandbox.config.dialects.srt_credentials import credential_files, credential_variables
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
_SIGNS = "*?["
# srt always allows writing these; those that do not exist are left out.
ALWAYS_WRITABLE = ("/tmp/claude", "~/.npm/_logs", "~/.claude/debug")
NO_FUNCTION = Message("a settings file cannot contain a function: use network.policy_script or hooks")
SIGNING = Message("signing AWS requests is not supported")


def _allowed_domains(value: object) -> dict[str, Any]:
    for pattern in text_list(value):
        if pattern.removeprefix("tcp:").split(":")[0] == "*":
            raise ConfigError("{pattern!r} is too broad; to allow every host, use allowAllDomains", pattern=pattern)
    return {"network.allowed_hosts": value}


def _all_domains(value: object) -> dict[str, Any]:
    return {"network.allowed_hosts": ["*"]} if boolean(value) else {}


def _paths(value: object) -> list[str]:
    """A list of paths. In `{path, literal: true}`, pattern characters stand for themselves."""
    if not isinstance(value, list):
        raise ConfigError("must be a list of paths")
    found = []
    for item in value:
        if isinstance(item, dict):
            if set(item) != {"path", "literal"} or item["literal"] is not True or not isinstance(item["path"], str):
                raise ConfigError("an entry is a path, or a mapping of `path` and `literal: true`")
            item = "".join(f"[{sign}]" if sign in _SIGNS else sign for sign in item["path"])
        if not isinstance(item, str) or not item:
            raise ConfigError("an entry is a path, or a mapping of `path` and `literal: true`")
        found.append(item)
    return found


def _deny_read(value: object) -> dict[str, Any]:
    return {"filesystem.deny_read": _paths(value)}


def _allow_read(value: object) -> dict[str, Any]:
    return {"filesystem.allow_read": _paths(value)}


def _deny_write(value: object) -> dict[str, Any]:
    return {"filesystem.deny_write": _paths(value)}


def _allow_write(value: object) -> dict[str, Any]:
    paths = [path.rstrip("/") or "/" for path in _paths(value)]
    # Only named paths can be written, as in srt: not even the project otherwise.
    return {
        "filesystem.read_only": not any(path in _PROJECT for path in paths),
        "filesystem.allow_write": [path for path in paths if path not in _PROJECT],
    }


def _local_binding(value: object) -> dict[str, Any]:
    return {"network.allow_localhost": True} if boolean(value) else {}  # the sandbox has its own loopback


def _unix_sockets(value: object) -> dict[str, Any]:
    paths = text_list(value)
    if "*" in paths:
        raise ConfigError("to allow every socket, use allowAllUnixSockets")
    return {"network.unix_sockets": paths}


def _all_unix_sockets(value: object) -> dict[str, Any]:
    return {"network.unix_sockets": ["*"]} if boolean(value) else {}


def _port(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65536:
        raise ConfigError("must be a port, not {value!r}", value=value)
    return value


def _proxy_port(value: object) -> dict[str, Any]:
    return {"network.upstream_proxy": f"http://127.0.0.1:{_port(value)}"}


def _socks_port(value: object) -> dict[str, Any]:
    return {"network.socks_proxy": f"socks5h://127.0.0.1:{_port(value)}"}  # see translate


def _proxy_socket(value: object) -> dict[str, Any]:
    return {"network.proxy_socket": _file_name(value)}


def _certificate(value: object) -> dict[str, Any]:
    return {"network.authority_certificate": _file_name(value)}


def _key(value: object) -> dict[str, Any]:
    # With the key, a tenant could impersonate hosts to other tenants that trust the same authority.
    return {"network.authority_key": _file_name(value), "filesystem.deny_read": [_file_name(value)]}


def _file_name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError("must be the name of a file")
    return os.path.abspath(os.path.expanduser(value))


def _no_proxy(value: object) -> dict[str, Any]:
    if not isinstance(value, str):
        raise ConfigError("must be a list of hosts, with commas between")
    found: list[str] = []
    for entry in filter(None, (one.strip().removeprefix("*").removeprefix(".") for one in value.split(","))):
        # In NO_PROXY, a name is a suffix: it means the name itself and every name below it.
        is_name = not entry.startswith("[") and "/" not in entry and any(letter.isalpha() for letter in entry)
        found += [entry, f"*.{entry}"] if is_name and entry.count(":") < 2 else [entry]
    return {"network.upstream_exceptions": ["*"] if "*" in value.split(",") else found}


def _extra_certificates(value: object) -> dict[str, Any]:
    paths = [os.path.expanduser(path) for path in text_list(value)]
    return {"network.ca_certificates": [path for path in paths if os.path.isfile(path)]}  # srt skips others too


def _excluded(value: object) -> dict[str, Any]:
    return {"network.excluded": text_list(value)}  # see _exclude


def _number(value: object) -> dict[str, Any]:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError("must be a positive number")
    return {}  # the gate has limits of its own


def _opaque(value: object) -> dict[str, Any]:
    return {"network.intercept": True, "network.allow_git": False} if boolean(value) else {}


def _target(value: object) -> dict[str, Any]:
    if value not in ("refuse", "asSpelled", "normalize"):
        raise ConfigError("must be one of: {choices}", choices="refuse, asSpelled, normalize")
    return {}  # it affects only `filterRequest`, which a settings file cannot have


def _safe_directories(value: object) -> dict[str, Any]:
    said = os.environ.get("GIT_CONFIG_COUNT", "0")
    first = int(said) if said.isdecimal() else 0
    paths = [os.path.abspath(os.path.expanduser(path)) for path in text_list(value)]
    settings = {f"GIT_CONFIG_KEY_{first + at}": "safe.directory" for at in range(len(paths))}
    settings |= {f"GIT_CONFIG_VALUE_{first + at}": path for at, path in enumerate(paths)}
    return {"environment.set": {**settings, "GIT_CONFIG_COUNT": str(first + len(paths))}} if paths else {}


def _strict(value: object) -> dict[str, Any]:
    boolean(value)
    return {}  # see translate


TABLE: Mapping[str, Any] = {
    "strict": _strict,
    "network.allowedDomains": _allowed_domains,
    "network.deniedDomains": "network.denied_hosts",
    "network.deniedDomainReasons": "network.denied_reasons",
    "network.deniedResolvedAddresses": "network.denied_hosts",
    "network.allowAllDomains": _all_domains,
    "network.strictAllowlist": ALWAYS,
    "network.allowUnixSockets": _unix_sockets,
    "network.allowAllUnixSockets": _all_unix_sockets,
    "network.allowLocalBinding": _local_binding,
    "network.allowMachLookup": ALWAYS,
    "network.httpProxyPort": _proxy_port,
    "network.socksProxyPort": _socks_port,
    "network.parentProxy.http": "network.upstream_proxy",
    "network.parentProxy.https": "network.upstream_proxy",
    "network.parentProxy.noProxy": _no_proxy,
    "network.mitmProxy.socketPath": _proxy_socket,
    "network.mitmProxy.domains": "network.proxy_socket_hosts",
    "network.filterRequest": refused(NO_FUNCTION),
    "network.allowPlaintextHeaderSet": ALWAYS,  # only a `filterRequest` sets headers
    "network.stripResponseHeaders": "network.strip_response_headers",
    "network.refuseOpaqueTunnels": _opaque,
    "network.requireHostMatch": ALWAYS,
    "network.ambiguousRequestTarget": _target,
    "network.tlsTerminate.caCertPath": _certificate,
    "network.tlsTerminate.caKeyPath": _key,
    "network.tlsTerminate.excludeDomains": _excluded,
    "network.tlsTerminate.extraCaCertPaths": _extra_certificates,
    "network.tlsTerminate.maxTunnels": _number,
    "network.tlsTerminate.handshakeTimeoutMs": _number,
    "filesystem.denyRead": _deny_read,
    "filesystem.allowRead": _allow_read,
    "filesystem.allowWrite": _allow_write,
    "filesystem.denyWrite": _deny_write,
    "filesystem.disabled": refused(Message("a settings file cannot disable the walls; use mode off")),
    "filesystem.allowGitConfig": "filesystem.allow_git_config",
    "credentials.files": credential_files,
    "credentials.envVars": credential_variables,
    "credentials.allowPlaintextInject": refused(Message("a secret is only sent over a verified TLS connection")),
    "credentials.awsPairs": refused(SIGNING),
    "credentials.sigv4": refused(SIGNING),
    "git.safeDirectories": _safe_directories,
    "allowNestedUserNamespaces": refused(
        Message("a namespace of their own would let tenants undo the write denies; they never get one")
    ),
    # Settings that weaken srt's isolation, or tune programs that we do not use.
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
    "javaAgentJarPath": ALWAYS,  # the gate needs no proxy variables, so a JVM needs no agent that reads them
    "windows": ALWAYS,
}


def translate(data: Mapping[str, Any], *, strict: bool = False) -> Translated:
    """srt's settings in our spelling. `strict`: as if they had `"strict": true`. Raises ConfigError."""
    into = by_table(data, TABLE)
    filesystem, network = into.data.setdefault("filesystem", {}), into.data.setdefault("network", {})
    filesystem.setdefault("read_only", True)
    if "tlsTerminate" in (data.get("network") or {}):
        network["intercept"] = True
    if ("authority_certificate" in network) != ("authority_key" in network):
        raise ConfigError("caCertPath and caKeyPath must be provided together", path="network.tlsTerminate")
    _check_inspecting(data.get("network") or {})
    socks = network.pop("socks_proxy", None)
    if socks is not None:  # the HTTP proxy carries every protocol, too
        network.setdefault("upstream_proxy", socks)
    _from_environment(network, data)
    network.setdefault("allow_git", True)  # srt allows ssh to every allowed host
    if strict or data.get("strict") is True:
        _closed(filesystem)
    else:
        _open(into.data)
    _exclude(network)
    into.masked = into.data.pop("masked", [])
    for entry in into.masked:
        if entry["hosts"] is None:
            hosts = network.get("allowed_hosts", [])
            entry["hosts"] = [host for host in hosts if host != "*" and not host.startswith("tcp:")]
    return into


def _check_inspecting(asked: Mapping[str, Any]) -> None:
    """`mitmProxy` is whole, and alone. Raises ConfigError."""
    proxy = asked.get("mitmProxy")
    if proxy is None:
        return
    if not proxy.get("socketPath") or not proxy.get("domains"):
        raise ConfigError("needs socketPath and domains", path="network.mitmProxy")
    if "tlsTerminate" in asked:
        raise ConfigError("tlsTerminate and mitmProxy are mutually exclusive", path="network.mitmProxy")


def _from_environment(network: dict[str, Any], data: Mapping[str, Any]) -> None:
    """As in srt: without `parentProxy`, the user's own proxy variables say how the host reaches the network."""
    asked = data.get("network") or {}
    if "upstream_proxy" in network or "parentProxy" in asked:
        return
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        value = os.environ.get(name)
        if value and value.removeprefix("http://") and "://" not in value.removeprefix("http://"):
            network["upstream_proxy"] = value
            exceptions = os.environ.get("NO_PROXY") or os.environ.get("no_proxy")
            if exceptions:
                network["upstream_exceptions"] = _no_proxy(exceptions)["network.upstream_exceptions"]
            return


def _open(ours: dict[str, Any]) -> None:
    """Gives the settings the meaning that they have in srt."""
    ours["user"] = "owner"
    filesystem = ours["filesystem"]
    filesystem |= {"show_host": True, "blocked_patterns": [], "allowed_patterns": [], "toolchains": False}
    filesystem["allow_write"] = [*filesystem.get("allow_write", []), *ALWAYS_WRITABLE]
    environment = ours.setdefault("environment", {})
    environment |= {"filter_secrets": False, "allow": ["*"]}
    ours["network"] |= {"refusals": "srt", "intranet": True}


def _closed(filesystem: dict[str, Any]) -> None:
    """Gives them our meaning: /tmp is the sandbox's own, so naming it has no effect; patterns match new files too."""
    filesystem["allow_write"] = [path for path in filesystem.get("allow_write", []) if path not in _TMP]
    globs = [path for path in filesystem.get("deny_read", []) if any(sign in path for sign in _SIGNS)]
    if globs:
        filesystem["deny_read"] = [path for path in filesystem["deny_read"] if path not in globs]
        filesystem["blocked_patterns"] = [*SENSITIVE_PATTERNS, *globs]


def _exclude(network: dict[str, Any]) -> None:
    """Applies `tlsTerminate.excludeDomains`: allowed hosts that are never inspected."""
    allowed = network.get("allowed_hosts", [])
    for excluded in network.pop("excluded", []):
        for host in allowed:
            name, _, port = host.partition(":")
            narrower = excluded if _covers(name, excluded) else name if _covers(excluded, name) else None
            if narrower is not None:
                network["allowed_hosts"] = [*network["allowed_hosts"], f"tcp:{narrower}:{port or 443}"]


def _covers(pattern: str, name: str) -> bool:
    return pattern in ("*", name) or (pattern.startswith("*.") and name.removeprefix("*").endswith(pattern[1:]))
