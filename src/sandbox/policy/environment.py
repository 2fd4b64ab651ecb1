"""Which environment variables a tenant sees.

Order: `block`, then what secrets of the gate are read from or holds the value of one, then `allow`, then what looks
like a secret (by name or by value), then pointers to services of the host and launch hooks; everything else passes.
Patterns ignore case, except in `allow`.
"""

from __future__ import annotations

from sandbox.config.variables import Names, glob, host_pointer, launch_hook, secret_value, secret_word
from sandbox.policy.decision import Decision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sandbox.config.model import Config, Environment, Secret

STANDARD_PATH = "/usr/local/bin:/usr/bin:/bin"
TMPDIR = "/tmp"
SHORTEST_SECRET = 6  # shorter values occur by chance
PASSED = Decision(True, "default", "No rule blocks it")  # nearly every variable, at every start


class EnvFilter:
    """The environment rules of one sandbox."""

    def __init__(self, environment: Environment) -> None:
        self.filter_secrets = environment.filter_secrets
        self.allow = environment.allow
        self.block = Names(environment.block)
        self.set = environment.set
        self._sources: dict[str, str] = {}  # variables that secrets are read from, and the settings that say so
        self._held: list[str] = []  # values of secrets

    @classmethod
    def of(cls, config: Config, environment: Mapping[str, str]) -> EnvFilter:
        """The rules of a sandbox whose owner has this `environment`: secrets that the gate holds are not passed."""
        made = cls(config.environment)
        for setting, secret in _secrets(config):
            if secret.from_env is not None:
                made._sources[secret.from_env] = f"{setting}.from_env"
            value = secret.value or environment.get(secret.from_env or "", "")
            if len(value) >= SHORTEST_SECRET:
                made._held.append(value)
        return made

    def check(self, name: str, value: str = "") -> Decision:
        """Whether the user's variable `name` is passed."""
        if not name or "=" in name or "\0" in name:
            return Decision(False, "malformed", "Not a valid variable name")
        pattern = self.block.match(name)
        if pattern is not None:
            return Decision(False, "environment.block", "Matches blocked variable: {pattern}", pattern=pattern)
        if name in self._sources:
            return Decision(False, self._sources[name], "A secret is read from it")
        if any(one in value for one in self._held):
            return Decision(False, "network.secrets", "It contains a secret's value")
        pattern = next((one for one in self.allow if glob(one, name)), None)
        if pattern is not None:
            return Decision(True, "environment.allow", "Matches allowed variable: {pattern}", pattern=pattern)
        if self.filter_secrets:
            word = secret_word(name)
            if word is not None:
                return Decision(False, "environment.filter_secrets", "Looks like a secret: {word}", word=word)
            if value and secret_value(value):
                return Decision(False, "environment.filter_secrets", "Its value looks like a secret")
        pattern = host_pointer(name)
        if pattern is not None:
            return Decision(False, "host-pointer", "Points to something on the host: {pattern}", pattern=pattern)
        pattern = launch_hook(name)
        if pattern is not None:
            return Decision(
                False, "launch-hook", "Makes programs load or run something from the host: {pattern}", pattern=pattern
            )
        return PASSED

    def filter(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The part of the user's environment that a tenant gets, plus `set` unchanged."""
        kept = {name: value for name, value in environment.items() if self.check(name, value)}
        kept["PATH"] = fixed_path(kept.get("PATH", ""))
        for name in ("TMPDIR", "TMP", "TEMP"):
            if name == "TMPDIR" or name in kept:
                kept[name] = TMPDIR
        kept.pop("OLDPWD", None)
        kept.pop("PWD", None)  # set by the shell; wrong as soon as a command starts in another directory
        kept.pop("_", None)
        kept.update(self.set)
        return kept

    def named(self, environment: Mapping[str, str]) -> list[str]:
        """The variables that the configuration itself names: set, or allowed by `allow`."""
        allowed = (one for one in environment if self.check(one, environment[one]).rule == "environment.allow")
        return [*self.set, *allowed]

    def redacted(
        self, words: Sequence[str] | None, environment: Mapping[str, str], more: Sequence[str] = ()
    ) -> list[str] | None:
        """A command as it may be stored and shown: without secrets that are not passed, without values that were set
        and look like secrets, and without `more`."""
        if words is None:
            return None
        secrets = [
            value
            for name, value in environment.items()
            if len(value) >= SHORTEST_SECRET
            and any(value in word for word in words)
            and self.check(name, value).rule == "environment.filter_secrets"
        ]
        secrets += [*secrets_of(self.set), *more]
        return [_without(word, secrets) for word in words]


def _secrets(config: Config) -> Iterator[tuple[str, Secret]]:
    for name, secret in config.network.secrets.items():
        yield f"network.secrets.{name}", secret
    for name, entry in config.credentials.items():
        for variable, secret in entry.variables.items():
            yield f"credentials.{name}.variables.{variable}", secret


def secrets_of(environment: Mapping[str, str]) -> list[str]:
    """The values that look like secrets, by their variable's name or by themselves."""
    return [
        value
        for name, value in environment.items()
        if len(value) >= SHORTEST_SECRET and (secret_word(name) is not None or secret_value(value))
    ]


def _without(word: str, secrets: list[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):  # one secret may be the beginning of another
        word = word.replace(secret, "[redacted]")
    return word


def fixed_path(path: str) -> str:
    """PATH with absolute entries only, once each: a relative entry runs programs from the current directory."""
    entries = [entry for entry in path.split(":") if entry.startswith("/")]
    return ":".join(dict.fromkeys(entries)) or STANDARD_PATH
