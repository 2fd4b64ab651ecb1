"""All credential entries of one sandbox: what their tenants get, and what the gate holds for them."""

from __future__ import annotations

import os

from sandbox.errors import ConfigError, Message
from sandbox.network.credentials.login import Login
from sandbox.network.secrets.held_secret import HeldSecret, HeldToken
from sandbox.network.secrets.sources import check
from sandbox.network.secrets.stored_key import placeholder_key
from sandbox.policy.hosts import HostSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandbox.config.model import Credential as Entry
    from sandbox.config.model import Secret
    from sandbox.network.http.message import Request
    from sandbox.network.secrets.held_secret import Held

GIT = """[credential "https://{host}"]
\thelper =
\thelper = "!f() {{ test \\"$1\\" = get && echo username=x-access-token && echo password={placeholder}; }}; f"
"""


class Logins:
    """Raises ConfigError for an entry that cannot be used. A missing file is not a mistake: nobody has logged in yet.
    `cover` hides a file of the host from tenants; it is called before a token is written to one. `project` is the word
    for the project (`state/paths.py`): logins made inside are kept for it alone."""

    def __init__(
        self,
        entries: Mapping[str, Entry],
        cover: Callable[[str], None] | None = None,
        project: str | None = None,
    ) -> None:
        key = placeholder_key()
        self.logins = [Login(name, entry, key, cover, project) for name, entry in entries.items()]
        self._variables: list[Held] = []
        self.notices = [login.problem for login in self.logins if login.problem is not None]
        self.notices += [
            Message(
                "{name}: a login made inside a sandbox is used instead of your own; to go back, remove {file!r}",
                name=login.name,
                file=login.source(),
            )
            for login in self.logins
            if login.replaces_own()
        ]
        self.notices += [
            Message(
                "{name}: the login made inside another project is used only there; to use it in all projects, run "
                "`sandbox profile share-login {name}` in that project",
                name=login.name,
            )
            for login in self.logins
            if login.is_elsewhere()
        ]
        self.environment: dict[str, str] = {}
        for login in self.logins:
            for variable, secret in login.entry.variables.items():
                self._add_variable(login, variable, secret, key)
        self._git = [
            (host, word) for login in self.logins for host in login.entry.git if (word := self._for(login, host))
        ]
        self._refuse_two_at_one_place()

    def _add_variable(self, login: Login, variable: str, secret: Secret, key: bytes) -> None:
        """A variable that has no value here is not set inside. A program is run only when the file has no token."""
        if secret.from_command is not None and (
            any(token.value for token in login.tokens()) or not _installed(secret.from_command[0])
        ):
            return
        label = f"{login.name}\0${variable}"
        setting = f"{login.path}.variables.{variable}"
        check(secret, setting)
        try:
            one = HeldSecret(variable, secret, "x", setting)
        except ConfigError as problem:  # the person's value is unusable; start without it
            self.notices.append(
                Message("{variable} is not set inside: its value {problem}", variable=variable, problem=problem.problem)
            )
            return
        if one.value is None:
            return
        from sandbox.network.credentials.token_shapes import shaped

        one.placeholder = (secret.placeholder or shaped(one.value.decode(), key, label)).encode()
        self._variables.append(one)
        self.environment[variable] = one.placeholder.decode()

    def _for(self, login: Login, host: str) -> str | None:
        """The placeholder that git sends to `host`."""
        [asked] = HostSet([host], f"{login.path}.git").patterns
        host, port = asked.host, asked.port or 443
        tokens = [one for one in login.tokens() if one.value and not one.endpoint_only and one.hosts.allows(host, port)]
        if tokens:
            return tokens[0].placeholder.decode()
        names = [one for one in self._variables if one.name in login.entry.variables and one.hosts.allows(host, port)]
        return names[0].placeholder.decode() if names else None

    def _refuse_two_at_one_place(self) -> None:
        places: dict[str, str] = {}
        for login in self.logins:
            place = login.entry.at or login.entry.file
            if place is not None and places.setdefault(os.path.expanduser(place), login.name) != login.name:
                raise ConfigError("another credential has the same file inside", path=login.path)

    # -- what tenants get

    def git_settings(self) -> str:
        """Git's settings inside: which name and password to send to which host."""
        return "".join(GIT.format(host=host, placeholder=word) for host, word in self._git)

    def files(self, home: str) -> dict[str, tuple[Login, str]]:
        """The files for inside, by path: the login and the content of each. `home` is the home directory inside. Raises
        ConfigError for a file that is not in the home directory."""
        found: dict[str, tuple[Login, str]] = {}
        mine = os.path.expanduser("~")
        for login in self.logins:
            text = login.inside()
            if text is None:
                continue
            path = os.path.abspath(os.path.expanduser(login.entry.at or login.entry.file or ""))
            if path.startswith(f"{mine}/"):
                path = home + path[len(mine) :]
            if not path.startswith(f"{home}/"):
                raise ConfigError(
                    "is not in the home directory: say where it is inside (`at`)", path=f"{login.path}.file"
                )
            found[path] = login, text
        return found

    # -- what the gate holds

    @property
    def version(self) -> int:
        """A number that differs when a token has changed."""
        return sum(login.version for login in self.logins)

    @property
    def may_log_in(self) -> bool:
        """Whether a tenant can get tokens: an entry has a token endpoint."""
        return any(login.entry.refresh.hosts for login in self.logins)

    def load(self) -> None:
        """Reads the files that have changed."""
        for login in self.logins:
            login.load()

    def held(self) -> list[Held]:
        """Every placeholder."""
        found: list[Held] = list(self._variables)
        for login in self.logins:
            for token in login.tokens():
                found += [HeldToken(token, one) for one in token.placeholders]
        return found

    def hidden(self) -> dict[str, bytes]:
        """Other strings of the files that look like secrets, with their placeholders."""
        return {value: word for login in self.logins for value, word in login.hidden.items()}

    def endpoint(self, request: Request) -> Login | None:
        """The entry whose token endpoint answers `request`, in any reading of it."""
        from sandbox.network.credentials.token_request import same_path
        from sandbox.network.http.http1_rules import readings

        for login in self.logins:
            if login.endpoint.names(request.host):
                targets = [target for _, target in readings(request.method, request.target, request.headers.pairs)]
                if any(same_path(target, login.entry.refresh.paths) for target in targets):
                    return login
        return None

    def values(self) -> list[str]:
        """Every current value, for callers that must not show one."""
        return [one.value.decode() for one in self.held() if one.value is not None]


def _installed(program: str) -> bool:
    from shutil import which

    from sandbox.network.secrets.programs import safe_path

    return which(program, path=safe_path()) is not None
