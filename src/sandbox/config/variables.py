"""Environment variables by what they are: the tables behind `policy/environment.py`."""

from __future__ import annotations

# As in UDS: a name that contains one of these words looks like a secret …
SECRET_WORDS = ("KEY", "SECRET", "TOKEN", "PASSWORD", "CREDENTIAL", "PASSWD", "PASSPHRASE", "PRIVATE")
# … and so do these names, from UDS and common services.
SECRET_NAMES = (
    "AWS_*", "GITHUB_*", "AZURE_*", "GOOGLE_APPLICATION_*", "*_PAT", "*_PASS", "*_AUTH", "*_DSN", "DATABASE_URL",
    "MONGO_URL", "REDIS_URL", "*_CONNECTION_STRING", "NETRC", "PGPASSFILE", "VAULT_*",
)  # fmt: skip
# Prefixes of values that are credentials, whatever the variable's name.
SECRET_VALUES = (
    "sk-", "sk_live_", "rk_live_", "ghp_", "gho_", "ghs_", "ghu_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "xoxa-",
    "AKIA", "ASIA", "AIza", "npm_", "pypi-", "eyJhbGciOi", "-----BEGIN ", "hf_", "SG.", "dop_v1_",
)  # fmt: skip

# Pointers to services of the host: useless inside, and a hint for an attacker.
HOST_POINTERS = (
    "SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "SSH_ASKPASS", "GPG_AGENT_INFO",
    "DBUS_*", "DOCKER_*", "CONTAINER_HOST", "KUBECONFIG", "KUBERNETES_*", "XDG_RUNTIME_DIR", "XDG_SESSION_*", "DISPLAY",
    "WAYLAND_*", "XAUTHORITY", "GNOME_KEYRING_*", "TMUX", "TMUX_*", "STY", "VSCODE_*", "GIT_ASKPASS", "SUDO_*", "MAIL",
    "WINDOWID", "NOTIFY_SOCKET", "LISTEN_*", "INVOCATION_ID", "JOURNAL_STREAM", "HISTFILE", "SANDBOX_HOME",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "CURL_CA_BUNDLE", "LESSHISTFILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "GIT_SSL_CAINFO",
)  # fmt: skip

# Variables that make a program load or run something when it starts; their values are meant for programs of the host.
LAUNCH_HOOKS = (
    "LD_PRELOAD", "LD_AUDIT", "DYLD_*", "BASH_ENV", "ENV", "PROMPT_COMMAND", "BASH_FUNC_*", "PYTHONSTARTUP",
    "PYTHONINSPECT", "PYTHONBREAKPOINT", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS",
    "GIT_SSH", "GIT_SSH_COMMAND", "GIT_CONFIG*", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_EXTERNAL_DIFF",
    "GIT_PROXY_COMMAND", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "RUSTC_WRAPPER",
)  # fmt: skip


def glob(pattern: str, text: str) -> bool:
    """Whether `text` matches: `*` is any run, `?` one character. (`fnmatch` would import `re` and compile.)"""
    at = star = mark = 0
    place = -1
    while mark < len(text):
        if at < len(pattern) and pattern[at] == "*":
            place, star, at = at, mark, at + 1
        elif at < len(pattern) and pattern[at] in ("?", text[mark]):
            at, mark = at + 1, mark + 1
        elif place >= 0:
            star += 1
            at, mark = place + 1, star
        else:
            return False
    return not pattern[at:].strip("*")


class Names:
    """Many name patterns, sorted by kind so that checking a variable takes a handful of C calls. Ignores case."""

    __slots__ = ("exact", "starts", "ends", "others", "_heads", "_tails")

    def __init__(self, patterns: tuple[str, ...] | list[str]) -> None:
        self.exact: dict[str, str] = {}
        self.starts: list[tuple[str, str]] = []
        self.ends: list[tuple[str, str]] = []
        self.others: list[tuple[str, str]] = []
        for text in patterns:
            upper = text.upper()
            if "*" not in upper and "?" not in upper:
                self.exact[upper] = text
            elif upper.endswith("*") and not any(sign in upper[:-1] for sign in "*?"):
                self.starts.append((upper[:-1], text))
            elif upper.startswith("*") and not any(sign in upper[1:] for sign in "*?"):
                self.ends.append((upper[1:], text))
            else:
                self.others.append((upper, text))
        self._heads = tuple(head for head, _ in self.starts)
        self._tails = tuple(tail for tail, _ in self.ends)

    def match(self, name: str) -> str | None:
        """The pattern that `name` matches, or None."""
        upper = name.upper()
        if upper in self.exact:
            return self.exact[upper]
        if upper.startswith(self._heads):
            return next(text for head, text in self.starts if upper.startswith(head))
        if upper.endswith(self._tails):
            return next(text for tail, text in self.ends if upper.endswith(tail))
        return next((text for pattern, text in self.others if glob(pattern, upper)), None)


_SECRET_NAMES = Names(SECRET_NAMES)
_HOST_POINTERS = Names(HOST_POINTERS)
_LAUNCH_HOOKS = Names(LAUNCH_HOOKS)


def secret_word(name: str) -> str | None:
    """Why `name` looks like a secret: the word or pattern, or None."""
    upper = name.upper()
    return next((word for word in SECRET_WORDS if word in upper), None) or _SECRET_NAMES.match(name)


def host_pointer(name: str) -> str | None:
    """The pattern by which `name` points to something on the host, or None."""
    return _HOST_POINTERS.match(name)


def launch_hook(name: str) -> str | None:
    """The pattern by which `name` makes a launcher load or run something, or None."""
    return _LAUNCH_HOOKS.match(name)


def secret_value(value: str) -> bool:
    """Whether a value looks like a credential: it has a known prefix, or is a URL with a password."""
    if value.startswith(SECRET_VALUES):
        return True
    scheme, found, rest = value.partition("://")
    authority = rest.split("/", 1)[0]
    return bool(found and scheme.isascii() and "@" in authority and ":" in authority.rpartition("@")[0])


def without_password(address: str | None) -> str | None:
    """`http://user:password@host` as it may be shown."""
    if not address or "@" not in address:
        return address
    before, _, host = address.rpartition("@")
    scheme, found, credentials = before.rpartition("://")
    return f"{scheme}{found}{credentials.partition(':')[0]}:[redacted]@{host}"
