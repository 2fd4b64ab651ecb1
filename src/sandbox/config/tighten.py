"""What "tighten" means for each setting. A project's file can do nothing else.

The agent can write the project, so the project's file must never allow more than the layers below it (built-in, user)
do. Each rule takes the current and the wanted value and returns the value to use and, if something was ignored, why.
A setting without a rule here is the user's alone to change, so a new setting is closed by default.

    safe(x)      a switch with a safe side: only towards it
    fewer        an allow-list: only what the current one covers
    more         a block-list: adds to the current one
    least        a limit: only lower
    user_only    programs, secrets, scripts, paths of the host: not from a project
    free         does not affect safety
"""

from __future__ import annotations

import os

from sandbox.config.model import MODES, PRESETS, Config
from sandbox.config.network_presets import HOSTS as PRESET_HOSTS
from sandbox.config.paths import absolute
from sandbox.config.patterns import Pattern, Patterns
from sandbox.config.variables import Names, host_pointer, launch_hook, secret_value, secret_word
from sandbox.errors import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sandbox.config.model import Filesystem

    # (current, wanted, config beneath, project directory) -> (value to use, why something was left out)
    Rule = Callable[[Any, Any, Config, str], tuple[Any, str | None]]


def tightened(path: str, current: Any, wanted: Any, config: Config, project: str) -> tuple[Any, str | None]:
    """The value to use when a project sets `wanted`, and why something was ignored."""
    if wanted == current:
        return current, None
    return RULES.get(path, user_only)(current, wanted, config, project)


def user_only(current: Any, wanted: Any, config: Config, project: str) -> tuple[Any, str | None]:
    return current, Message("only the user's own file and the command line may set it")


def free(current: Any, wanted: Any, config: Config, project: str) -> tuple[Any, str | None]:
    return wanted, None


def safe(side: bool) -> Rule:
    def rule(current: Any, wanted: Any, config: Config, project: str) -> tuple[Any, str | None]:
        return (
            (wanted, None)
            if wanted is side
            else (current, Message("only {value} is stricter", value=str(side).lower()))
        )

    return rule


def least(current: Any, wanted: Any, config: Config, project: str) -> tuple[Any, str | None]:
    if wanted is not None and (current is None or wanted <= current):
        return wanted, None
    return current, Message("the limit is already {limit}", limit=current)


def more(current: Any, wanted: Any, config: Config, project: str) -> tuple[Any, str | None]:
    return [*current, *(item for item in wanted if item not in current)], None


def fewer(covers: Callable[[Any, Any, Config, str], bool]) -> Rule:
    """`covers(item, current)` says whether the current list already gives what `item` asks for."""

    def rule(current: Any, wanted: Any, config: Config, project: str) -> tuple[Any, str | None]:
        kept = [item for item in wanted if covers(item, current, config, project)]
        extra = [str(item) for item in wanted if item not in kept]
        return kept, _not_allowed(extra) if extra else None

    return rule


def _not_allowed(extra: list[str]) -> Message:
    return Message("not allowed by the other layers: {items}", items=", ".join(extra))


def _listed(item: Any, current: Any, config: Config, project: str) -> bool:
    return item in current


def _host_covered(item: str, current: list[str], config: Config, project: str) -> bool:
    """`api.x.org` by itself, by `*.x.org` or by `*`; with a port also by the same without one, except ssh's.

    An address or a network only by itself. `*` is every name and no address, and `0.0.0.0/0` does not open the private
    addresses in it, which an entry of their own would.
    """
    current = [*current, *PRESET_HOSTS[config.network.preset]]
    if item in current:
        return True
    raw, (host, port) = item.startswith("tcp:"), _host_and_port(item.removeprefix("tcp:"))
    named = _is_name(host)
    for allowed in current:
        if raw and not allowed.startswith("tcp:"):
            continue  # `tcp:` exempts a port from inspection
        wide, its_port = _host_and_port(allowed.removeprefix("tcp:"))
        if its_port not in (port, "*") and not (its_port == "" and port not in ("22", "*")):
            continue
        if wide == host:
            return True
        if named and (wide == "*" or (wide.startswith("*.") and host.removeprefix("*").endswith(wide[1:]))):
            return True
    return False


def _is_name(host: str) -> bool:
    """Whether `host` is a name and in no spelling an address or a network. A name does not end with a number."""
    try:
        plain = host if host.isascii() else host.encode("idna").decode("ascii")  # full-width digits are digits
    except UnicodeError:
        return False
    last = plain.lower().rstrip(".").rpartition(".")[2]
    return not (any(sign in plain for sign in ":/[]%") or last.isdigit() or last.startswith("0x"))


def _host_and_port(entry: str) -> tuple[str, str]:
    host, colon, port = entry.lower().rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):  # no port, or a bare IPv6 address
        return entry.lower(), ""
    return host, port.lstrip("0") if port.isdigit() else port  # 022 is 22


def _path_covered(item: str, current: list[str], config: Config, project: str) -> bool:
    """A listed path, or one below it with nothing hidden in between: a path that is listed itself would be shown."""
    path = absolute(item, project)
    tops = [absolute(top, project) for top in current]
    return path in tops or any(_open_way(top, path, config.filesystem, project) for top in tops)


def _open_way(top: str, path: str, filesystem: Filesystem, project: str) -> bool:
    """Whether `path` is below `top`, and the same rules apply to it when it is listed itself.

    Patterns apply below the listed path, so none may match a directory between the two. Patterns with a slash and
    relative paths would mean other files. Hidden directories are refused, because programs keep secrets there.
    """
    if not path.startswith(top.rstrip("/") + "/"):
        return False
    names = path[len(top.rstrip("/")) + 1 :].split("/")
    rules = [Pattern(text) for text in (*filesystem.blocked_patterns, *filesystem.allowed_patterns)]
    if any(rule.by_path and not rule.anywhere for rule in rules):
        return False
    denied = (*filesystem.deny_read, *filesystem.deny_write)
    if any(sign in entry for entry in denied for sign in "*?["):
        return False
    if any(f"{path}/".startswith(absolute(entry, project).rstrip("/") + "/") for entry in denied):
        return False
    blocked = Patterns(filesystem.blocked_patterns)
    steps = ("/".join(names[:end]) for end in range(1, len(names) + 1))
    return not any(step.rpartition("/")[2].startswith(".") or blocked.match(step, True) for step in steps)


def _readable_path_covered(item: str, current: list[str], config: Config, project: str) -> bool:
    return _path_covered(item, [*current, *config.filesystem.allow_write], config, project)


def _tool_covered(item: str, current: list[str], config: Config, project: str) -> bool:
    """`Bash(git:*)` by itself, by `Bash` and by `*`."""
    return any(allowed in ("*", item, item.partition("(")[0]) for allowed in current)


def _variable_covered(item: str, current: list[str], config: Config, project: str) -> bool:
    """A plain name that would be passed anyway. A pattern could cover names that would not."""
    special = secret_word(item) if config.environment.filter_secrets else None
    return not ("*" in item or "?" in item or special or host_pointer(item) or launch_hook(item))


def _variables_allowed(current: Any, wanted: Any, config: Config, project: str) -> tuple[Any, str | None]:
    """Some of the current list. A variable that is passed anyway gets no entry, which would pass secret values too."""
    extra = [name for name in wanted if name not in current and not _variable_covered(name, current, config, project)]
    return [name for name in wanted if name in current], _not_allowed(extra) if extra else None


def _fewer_requests(current: Any, wanted: Any, config: Config, project: str) -> tuple[Any, str | None]:
    """Some of the current rules, but at least one for each host: a host without rules accepts every request."""
    kept = [rule for rule in wanted if rule in current]
    hosts = {_host_of(rule) for rule in kept}
    needed = [rule for rule in current if _host_of(rule) not in hosts]
    extra = [rule for rule in wanted if rule not in kept]
    if not needed:
        return kept, _not_allowed(extra) if extra else None
    why = Message("the only rules for their hosts: {rules}", rules=", ".join(needed))
    if extra:
        why = Message("{first}; {second}", first=_not_allowed(extra), second=why)
    return [*kept, *needed], why


def _host_of(rule: str) -> str:
    return rule.split()[-1].partition("/")[0].lower() if rule.split() else ""


def _variables_set(current: Any, wanted: Any, config: Config, project: str) -> tuple[Any, str | None]:
    """Only new variables with plain values: none that the user sets, no placeholder of a secret, no launch hook."""
    blocked = Names(config.environment.block)
    refused = [
        name
        for name, value in wanted.items()
        if current.get(name) != value
        and (
            name in current
            or "${" in value
            or name in ("PATH", "HOME", "TMPDIR")
            or bool(secret_word(name) or host_pointer(name) or launch_hook(name) or blocked.match(name))
            or secret_value(value)
        )
    ]
    kept = {name: value for name, value in wanted.items() if name not in refused} | current
    return kept, Message("a project may not set: {names}", names=", ".join(refused)) if refused else None


def _stricter_mode(current: Any, wanted: Any, config: Config, project: str) -> tuple[Any, str | None]:
    if MODES.index(wanted) > MODES.index(current):
        return wanted, None
    return current, Message("{wanted} is weaker than {current}", wanted=wanted, current=current)


def _stricter_preset(current: Any, wanted: Any, config: Config, project: str) -> tuple[Any, str | None]:
    if PRESETS.index(wanted) < PRESETS.index(current):
        return wanted, None
    return current, Message("{wanted} is weaker than {current}", wanted=wanted, current=current)


def _ordinary_user(current: Any, wanted: Any, config: Config, project: str) -> tuple[Any, str | None]:
    return (wanted, None) if wanted == "user" else (current, Message("only {value} is stricter", value="user"))


def _narrower_root(current: Any, wanted: Any, config: Config, project: str) -> tuple[Any, str | None]:
    filesystem = config.filesystem
    lists = (filesystem.allow_read, filesystem.allow_write, filesystem.deny_read, filesystem.deny_write)
    # Relative entries are relative to the root: with another root they would mean other files.
    relative = any(not path.startswith(("/", "~")) for paths in lists for path in paths)
    top, path = absolute(current, project), absolute(wanted, project)
    if path != top and (relative or not _open_way(top, path, filesystem, project) or not os.path.isdir(path)):
        return current, Message(
            "{wanted} is not a directory within {current}, or other rules would apply to other files there",
            wanted=wanted,
            current=current,
        )
    return wanted, None


RULES: dict[str, Rule] = {
    "enabled": safe(True),
    "mode": _stricter_mode,
    "cluster": user_only,
    "engine": user_only,
    "user": _ordinary_user,
    "image": user_only,
    "runtime": user_only,
    "container_prefix": user_only,
    "image_names": user_only,
    "image_source": user_only,
    "image_keys": user_only,
    "filesystem.root": _narrower_root,
    "filesystem.also_at": free,
    "filesystem.read_only": safe(True),
    "filesystem.overlay": safe(True),
    "filesystem.show_host": safe(False),
    "filesystem.allow_git_config": safe(False),
    "filesystem.branch": user_only,
    "filesystem.allow_read": fewer(_readable_path_covered),
    "filesystem.allow_write": fewer(_path_covered),
    "filesystem.deny_read": more,
    "filesystem.replaced": user_only,
    "filesystem.deny_write": more,
    "filesystem.blocked_patterns": more,
    "filesystem.allowed_patterns": fewer(_listed),
    "filesystem.toolchains": safe(False),
    "filesystem.programs": user_only,
    "filesystem.scratch_size": least,
    "filesystem.ask": safe(False),
    "environment.filter_secrets": safe(True),
    "environment.allow": _variables_allowed,
    "environment.block": more,
    "environment.set": _variables_set,
    "state.name": user_only,
    "state.keep": user_only,
    "state.per_project": safe(True),
    "state.project": user_only,
    "network.allowed_hosts": fewer(_host_covered),
    "network.preset": _stricter_preset,
    "network.denied_hosts": more,
    "network.block_private_ips": safe(True),
    "network.intranet": safe(False),
    "network.allow_localhost": safe(False),
    "network.localhost_ports": fewer(_listed),
    "network.publish": fewer(_listed),
    "network.denied_reasons": user_only,
    "network.refusals": free,
    "network.unix_sockets": fewer(_listed),
    "network.allow_git": safe(False),
    "network.http.allow": _fewer_requests,
    "network.http.deny": more,
    "network.secrets": user_only,
    "network.policy_script": user_only,
    "network.policy_secrets": user_only,
    "network.intercept": safe(True),
    "network.ca_certificates": user_only,
    "network.authority_certificate": user_only,
    "network.authority_key": user_only,
    "network.strip_response_headers": more,
    "network.upstream_proxy": user_only,
    "network.upstream_exceptions": user_only,
    "network.proxy_socket": user_only,
    "network.proxy_socket_hosts": user_only,
    "network.gate": user_only,
    "network.ask": safe(False),
    "network.ask_timeout": least,
    "credentials": user_only,
    "caches": fewer(_listed),
    "limits.memory": least,
    "limits.cpus": least,
    "limits.pids": least,
    "limits.file_size": least,
    "limits.open_files": least,
    "limits.timeout": least,
    "limits.lifetime": least,
    "limits.idle_timeout": least,
    "tools.enforce_agent_permissions": safe(True),
    "tools.allowed": fewer(_tool_covered),
    "tools.disallowed": more,
    "agents.runner": user_only,
    "agents.hosts": user_only,
    "agents.profile": user_only,
    "agents.allow_no_sandbox": user_only,
    "audit.directory": user_only,
    "audit.rotate_size": user_only,
    "browser.enabled": safe(False),
    "browser.image": user_only,
    "browser.cdp_port": user_only,
    "browser.headless": free,
    "browser.auto_start": safe(False),
    "browser.auto_start_timeout": least,
    "browser.vnc_port": user_only,
    "desktop.enabled": safe(False),
    "desktop.start": free,
    "desktop.size": free,
    "desktop.sound": safe(False),
    "desktop.display": user_only,
    "vfs.direct_mounts": user_only,
    "vfs.mounts": user_only,
    "vfs.file_events": free,
    # The signer reads only the user's own file; a project can only disable it.
    "signing.enabled": safe(False),
    "signing.backend": user_only,
    "signing.keystore": user_only,
    "signing.command": user_only,
    "signing.url": user_only,
    "signing.address": user_only,
    "signing.chains": user_only,
    "signing.rpc": user_only,
    "signing.broadcast": user_only,
    "signing.allowed_addresses": user_only,
    "signing.denied_addresses": user_only,
    "signing.contracts": user_only,
    "signing.max_value": user_only,
    "signing.max_gas": user_only,
    "signing.max_fee_per_gas": user_only,
    "signing.max_per_hour": user_only,
    "signing.max_per_day": user_only,
    "signing.max_spend_per_day": user_only,
    "signing.per_sandbox.max_value": user_only,
    "signing.per_sandbox.max_per_hour": user_only,
    "signing.per_sandbox.max_per_day": user_only,
    "signing.per_sandbox.max_spend_per_day": user_only,
    "signing.confirm_above": user_only,
    "signing.approval_lifetime": user_only,
    "signing.messages.text": user_only,
    "signing.messages.typed": user_only,
    "ui.language": free,
}
