"""macOS: the same configuration as a Seatbelt profile, for `sandbox-exec`.

Seatbelt has no namespaces: a tenant sees the machine's own paths, processes and loopback, and the profile says which of
them it may touch. In a profile the last rule that matches wins, so general permissions come first and refusals after
them. The only way out is the gate's port, which the usual proxy variables name.
"""

from __future__ import annotations

import posixpath
from base64 import b64encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sandbox.config.model import Config, Filesystem, Network

SANDBOX_EXEC = "/usr/bin/sandbox-exec"

# Programs, libraries and what they need to start. Nothing here is personal.
SYSTEM = (
    "/System", "/usr", "/bin", "/sbin", "/opt/homebrew", "/opt/local", "/Library/Apple", "/Library/Developer",
    "/Library/Frameworks", "/Library/Java", "/Applications/Xcode.app", "/private/etc/ssl", "/private/var/db/timezone",
    "/private/var/select", "/private/var/db/dyld",
)  # fmt: skip
SYSTEM_FILES = (
    "/", "/private/etc/hosts", "/private/etc/passwd", "/private/etc/group", "/private/etc/services",
    "/private/etc/protocols", "/private/etc/resolv.conf", "/private/etc/shells", "/private/etc/localtime",
    "/private/etc/zshrc", "/private/etc/zprofile", "/private/etc/profile", "/private/etc/bashrc",
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/dtracehelper", "/dev/fd")
SERVICES = (
    "com.apple.system.opendirectoryd.libinfo",  # users and groups by number
    "com.apple.system.opendirectoryd.membership",
    "com.apple.system.notification_center",
    "com.apple.system.logger",
    "com.apple.bsd.dirhelper",  # where temporary files go
    "com.apple.trustd.agent",  # for programs that use the system's certificate trust
    "com.apple.SecurityServer",
)


def profile(
    config: Config,
    *,
    root: str,
    home: str,
    scratch: str,
    proxy_port: int,
    protected: Sequence[str] = (),
    programs: Sequence[str] = (),
    hidden: Sequence[str] = (),
) -> str:
    """The profile's text.

    `scratch` is the sandbox's own temporary directory; `protected` are patterns of files that programs on the host run
    later, which tenants cannot change; `programs` are more directories that tenants may read, like the system's;
    `hidden` are directories that tenants may not read.
    """
    lines = ["(version 1)", f'(deny default (with message "{_quoted("sandbox " + posixpath.basename(root))}"))']
    lines += _processes()
    lines += _files(config.filesystem, _real(root), home, _real(scratch), protected, programs)
    if hidden:
        lines += ["; the sandbox's own", _rule("deny", "file-read* file-write*", map(_subpath, map(_real, hidden)))]
    lines += _network(config.network, proxy_port)
    return "\n".join(lines) + "\n"


def arguments(text: str, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` under the profile."""
    return [SANDBOX_EXEC, "-p", text, "--", *command]


def proxy_environment(port: int, token: str, ssh_proxy: str) -> dict[str, str]:
    """The variables that tell programs about the gate. In both cases: some programs read only one of them.

    `ssh_proxy` is the file with `ssh_proxy_script`: ssh has no variable for a proxy.
    """
    address = f"http://sandbox:{token}@127.0.0.1:{port}"
    socks = f"socks5h://sandbox:{token}@127.0.0.1:{port}"
    direct = "localhost,127.0.0.1,::1"
    found = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "ALL_PROXY": socks, "NO_PROXY": direct}
    found |= {name.lower(): value for name, value in found.items()}
    found["GIT_SSH_COMMAND"] = f"ssh -o ProxyCommand='{ssh_proxy} %h %p'"
    return found


def ssh_proxy_script(port: int, token: str) -> str:
    """A program for ssh's ProxyCommand. In bash, because macOS' nc cannot authenticate to a proxy."""
    credentials = b64encode(f"sandbox:{token}".encode()).decode()
    return f"""#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/{port} || exit 1
printf 'CONNECT %s:%s HTTP/1.1\\r\\nProxy-Authorization: Basic {credentials}\\r\\n\\r\\n' "$1" "$2" >&3
read -r _ status _ <&3
[ "$status" = 200 ] || exit 1
while read -r line <&3 && [ "$line" != $'\\r' ]; do :; done
cat <&3 &
cat >&3
kill $! # ssh has gone
"""


def _processes() -> list[str]:
    return [
        "",
        "; a tenant may run programs and tend its own; other people's processes it does not see",
        "(allow process-exec process-fork)",
        "(allow process-info* signal (target same-sandbox))",
        "(allow sysctl-read)",
        "(allow ipc-posix-shm* ipc-posix-sem*)",
        "(allow pseudo-tty)",
        _rule("allow", "mach-lookup", [f'(global-name "{name}")' for name in SERVICES]),
    ]


def _files(
    filesystem: Filesystem, root: str, home: str, scratch: str, protected: Sequence[str], programs: Sequence[str]
) -> list[str]:
    def named(entries: Iterable[str]) -> list[str]:
        return [posixpath.normpath(posixpath.join(root, _expanded(entry, home))) for entry in entries]

    def paths(entries: Iterable[str]) -> list[str]:
        return [_real(path) for path in named(entries)]

    def refused(entries: Iterable[str]) -> list[str]:
        # Where links lead as well. A permission follows none: tenants may have made it.
        return list(dict.fromkeys([*paths(entries), *(_real(posixpath.realpath(one)) for one in named(entries))]))

    readable, writable = paths(filesystem.allow_read), paths(filesystem.allow_write)
    seen = [root, scratch, *readable, *writable]
    changing = [scratch, *writable] if filesystem.read_only else [root, scratch, *writable]
    lines = ["; everything that is not refused", '(allow file-read* (subpath "/"))'] if filesystem.show_host else []
    lines += [
        "",
        "; the system, read-only",
        _rule("allow", "file-read*", [*map(_subpath, (*SYSTEM, *programs)), *map(_literal, (*SYSTEM_FILES, *DEVICES))]),
        _rule("allow", "file-write* file-ioctl", [*map(_literal, DEVICES)]),
        "; the way to what may be seen: names on it, nothing beside it",
        _rule("allow", "file-read-metadata", map(_literal, _ancestors([*seen, *programs]))),
        "; the project, and what was named or refused: the narrower counts, so it comes later",
        *_by_depth(seen, changing, refused(filesystem.deny_read)),
    ]
    if filesystem.blocked_patterns:
        blocked = _any(_regexes(filesystem.blocked_patterns, root))
        if filesystem.allowed_patterns:
            # An exception from the refusal, not a permission: it shows nothing that the rules above do not allow.
            blocked = f"(require-all {blocked} (require-not {_any(_regexes(filesystem.allowed_patterns, root))}))"
        lines += ["; secrets", _rule("deny", "file-read* file-write*", [blocked])]
    unchanged = [*map(_subpath, refused(filesystem.deny_write)), *_regexes(protected, root)]
    if unchanged:
        lines += ["; never changed", _rule("deny", "file-write*", unchanged)]
    if protected:
        # Moving the directory of a protected file aside and putting another in its place is a change too.
        lines.append(_rule("deny", "file-write-unlink", [_literal(f"{root}/.git"), _literal(root)]))
    return lines


def _network(network: Network, proxy_port: int) -> list[str]:
    ports = [proxy_port, *sorted(set(network.localhost_ports))]
    lines = [
        "",
        "; the gate, and the ports of this machine that were chosen; no other address, no name server, no Unix socket",
        _rule("allow", "network-outbound", [f'(remote ip "localhost:{port}")' for port in ports]),
    ]
    if network.allow_localhost or network.publish:
        lines.append('(allow network-bind network-inbound (local ip "localhost:*"))')
    return lines


def _rule(verdict: str, operation: str, filters: Iterable[str]) -> str:
    return f"({verdict} {operation}" + "".join(f"\n  {one}" for one in filters) + ")"


def _any(filters: Sequence[str]) -> str:
    return f"(require-any {' '.join(filters)})" if len(filters) > 1 else filters[0]


def _subpath(path: str) -> str:
    return f'(subpath "{_quoted(path)}")'


def _literal(path: str) -> str:
    return f'(literal "{_quoted(path)}")'


def _quoted(text: str) -> str:
    """`text` inside a profile's string. Raises ValueError for control characters: versions spell them differently."""
    if any(ord(letter) < 32 for letter in text):
        raise ValueError(f"a path with control characters cannot be put in a Seatbelt profile: {text!r}")
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _expanded(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def _real(path: str) -> str:
    """`path` as Seatbelt compares it: by its real name. On macOS these three are links."""
    top = "/" + path.split("/")[1] if path.startswith("/") else ""
    return f"/private{path}" if top in ("/tmp", "/var", "/etc") else path


def _by_depth(seen: Iterable[str], changing: Sequence[str], denied: Iterable[str]) -> list[str]:
    """Rules with the shallowest path first; for the same path, the refusal last. It refuses reading and writing."""
    rules = [(path.count("/"), "allow", path) for path in seen] + [(path.count("/"), "deny", path) for path in denied]
    lines = []
    for _, verdict, path in sorted(rules):
        only_read = verdict == "allow" and path not in changing
        lines.append(f"({verdict} {'file-read*' if only_read else 'file-read* file-write*'} {_subpath(path)})")
    return lines


def _ancestors(paths: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for path in paths:
        parts = path.strip("/").split("/")
        for count in range(1, len(parts)):
            found["/" + "/".join(parts[:count])] = None
    return sorted(found)


def _regexes(patterns: Iterable[str], root: str) -> list[str]:
    return [f'(regex #"{_regex(pattern, root)}")' for pattern in patterns]


def _regex(pattern: str, root: str) -> str:
    """A gitignore-like pattern as an expression over whole paths. It ignores case, as the disk does."""
    body = pattern.strip("/").removeprefix("**/")
    text = _translated(body)
    # A name matches anywhere; a path of several names, anywhere in the project (which may contain other projects).
    start = "^" + "".join(map(_letter, root)) + "/(.*/)?" if "/" in body else "/"
    return f"{start}{text}(/|$)"


def _translated(body: str) -> str:
    """A pattern's body, read as `config/patterns.py` reads it."""
    out, at = "", 0
    while at < len(body):
        wild = next((one for one in _WILD if body.startswith(one, at)), None)
        if wild is not None:
            piece, step = _WILD[wild], len(wild)
        elif body[at] == "[" and "]" in body[at + 2 :]:
            end = body.index("]", at + 2)
            piece, step = _choice(body[at + 1 : end]), end + 1 - at
        elif body[at] == "\\" and at + 1 < len(body):
            piece, step = _letter(body[at + 1]), 2
        else:
            piece, step = _letter(body[at]), 1
        out, at = out + piece, at + step
    return out


_WILD = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}  # the longest first


def _choice(signs: str) -> str:
    """One of these characters and ranges; with `!` or `^` before them, any other."""
    negated = signs[0] in "!^"
    left, found = signs[negated:].replace("--", "-"), []
    while left:
        if len(left) > 2 and left[1] == "-":
            found += [chr(code) for code in range(ord(left[0]), ord(left[2]) + 1)]
            left = left[3:]
        else:
            found.append(left[0])
            left = left[1:]
    if not negated:
        return f"({'|'.join(map(_letter, found))})"
    both = sorted({case for one in found for case in (one.lower(), one.upper())}, key=lambda one: (one == "-", one))
    return f"[^/{''.join(one if one not in _IN_SET else chr(92) + one for one in both)}]"


_IN_SET = '"]\\'


def _letter(one: str) -> str:
    if one.isalpha() and one.lower() != one.upper() and one.isascii():
        return f"[{one.lower()}{one.upper()}]"
    return one if one.isalnum() or one in "/_- ~,:%@=" else f"\\{one}"
