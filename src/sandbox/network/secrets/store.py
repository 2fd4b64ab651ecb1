"""The secrets of one sandbox: what it was given, which host may get which, and what must not leave.

`injection.py` puts values into requests and `clean_response.py` takes them out of responses. Both ask here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.errors import ConfigError, Denied
from sandbox.network.secrets.held_secret import RULE, HeldSecret, endpoint_only, no_value
from sandbox.network.secrets.placeholder_search import word_in
from sandbox.network.secrets.placeholders import check_placeholder
from sandbox.network.secrets.spellings import Values
from sandbox.network.secrets.unfinished import UnfinishedTasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sandbox.config.model import Secret
    from sandbox.network.credentials.logins import Logins
    from sandbox.network.http.message import Request
    from sandbox.network.secrets.held_secret import Held
    from sandbox.policy.hosts import HostSet

MAX_HOSTS = 1024  # hosts for which `known` is cached


class Known:
    """What the secrets say about one host and port."""

    __slots__ = ("usable", "forbidden", "confided")

    def __init__(self, usable: list[Held], forbidden: list[bytes], confided: bool) -> None:
        self.usable = usable
        self.forbidden = forbidden  # placeholders that must not be sent there
        self.confided = confided  # whether a secret is, or ever was, for this host


class Secrets:
    """All secrets of one sandbox, every placeholder it ever handed out and every value it was ever given.

    `logins`: the credential files and logins that it was given."""

    def __init__(
        self,
        secrets: Mapping[str, Secret],
        placeholders: Mapping[str, str],
        logins: Logins | None = None,
        complain: Callable[[str, str], None] | None = None,
    ) -> None:
        self._placeholders = dict(placeholders)
        self._names: dict[bytes, tuple[str, str]] = {}  # name and setting by placeholder, revoked ones included
        self.values = Values()
        self.logins = logins
        self._seen_logins = -1
        self._configured: list[Held] = []
        self._held: list[Held] = []
        self._past: list[HostSet] = []  # hosts that secrets were ever for
        self._by_host: dict[tuple[str, int], Known] = {}
        self.unfinished = UnfinishedTasks()  # token exchanges in progress
        self.complain = complain or (lambda setting, error: None)  # called when tokens could not be written
        self.update(secrets)

    def update(self, secrets: Mapping[str, Secret]) -> None:
        """Replaces the secrets. Raises ConfigError and changes nothing when one is invalid."""
        configured: list[Held] = [
            HeldSecret(name, secret, self._placeholder(name, secret)) for name, secret in secrets.items()
        ]
        held = [*configured, *(self.logins.held() if self.logins is not None else ())]
        for one in held:
            check_placeholder(one.placeholder.decode(), f"{one.setting}.placeholder")
            if _collides(one, held):
                path = f"{one.setting}.placeholder"
                raise ConfigError("must not contain a secret's value or be part of one: tenants can see it", path=path)
        self._configured = configured
        for name in secrets:
            self._placeholders[name] = next(one for one in configured if one.name == name).placeholder.decode()
        self._take(held)

    def _take(self, held: list[Held]) -> None:
        """Makes these the secrets from now on."""
        there = {id(one.hosts) for one in held}
        past = [one.hosts for one in self._held if id(one.hosts) not in there]
        for one in held:  # before it can be sent anywhere: the gate's thread goes on meanwhile
            self._names[one.placeholder] = one.name, one.setting
            self.learn(one)
        self._past += past
        self._held = held
        if self.logins is not None:
            self._seen_logins = self.logins.version
            for value, placeholder in self.logins.hidden().items():
                self.values.add("credentials", value.encode(), placeholder)
                self._names.setdefault(placeholder, ("credentials", "credentials"))
        self._by_host = {}

    def inherit(self, other: Secrets) -> None:
        """Everything that `other` was ever given is protected here as well: this sandbox is a fork of that one."""
        for placeholder, about in list(other._names.items()):
            self._names.setdefault(placeholder, about)
        self.values.include(other.values)
        self._past += other._ever()
        self._by_host = {}

    def learn(self, one: Held) -> bytes | None:
        """Its current value, which is searched for from now on."""
        value = one.value
        if value is not None:
            self.values.add(one.name, value, one.placeholder)
        return value

    def follow_logins(self) -> None:
        """Takes over changes in credential files. A token that collides with a placeholder is not used."""
        if self.logins is None:
            return
        self.logins.load()
        if self.logins.version != self._seen_logins:
            held = [*self._configured, *self.logins.held()]
            self._take([one for one in held if not _collides(one, held)])

    def _placeholder(self, name: str, secret: Secret) -> str:
        if secret.placeholder is not None:
            return secret.placeholder
        if name not in self._placeholders:
            from sandbox.network.secrets.placeholders import placeholders

            self._placeholders.update(placeholders({name: secret}))
        return self._placeholders[name]

    def placeholders(self, names: Iterable[str]) -> dict[str, str]:
        """What tenants have instead of these secrets."""
        return {name: self._placeholders[name] for name in names}

    def __bool__(self) -> bool:
        return bool(self._names)

    def known(self, host: str, port: int) -> Known:
        """What the secrets say about this host and port."""
        known = self._by_host.get((host, port))
        if known is None:
            usable = [one for one in self._held if not one.endpoint_only and one.hosts.allows(host, port)]
            allowed = {one.placeholder for one in usable}
            confided = bool(usable) or any(one.names(host) for one in self._ever())
            known = Known(usable, [word for word in self._names if word not in allowed], confided)
            if len(self._by_host) >= MAX_HOSTS:
                self._by_host.clear()
            self._by_host[host, port] = known
        return known

    def _ever(self) -> Iterable[HostSet]:
        yield from self._past
        for one in self._held:
            yield one.hosts

    def scrub(self, text: str) -> str:
        """`text` without any value: for URLs and reasons in the record."""
        return self.values.scrubbed(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def refuse_in(self, data: bytes, host: str, port: int) -> None:
        """Raises Denied when `data`, a request's head, contains a value or a placeholder that must not go to `host`."""
        self.refuse_values(data)
        words = self.known(host, port).forbidden
        folded = data.lower()  # names of fields have no case, and HTTP/2 writes them in lower case
        found = word_in(data, words) or next((word for word in words if word.lower() in folded), None)
        if found is not None:
            raise self.refusal(found, host)

    def looking(self) -> Callable[[bytes], None]:
        """A function that is called with each piece of an outgoing stream, and raises Denied when it has seen a value.
        Nothing is held back for that: a delay would tell the sender that it sent part of a value."""
        before = b""

        def look(data: bytes) -> None:
            nonlocal before
            data = before + data
            self.refuse_values(data)
            keep = self.values.longest
            before = data[-keep:] if keep else b""

        return look

    def words_for(self, request: Request) -> tuple[list[bytes], dict[bytes, bytes]]:
        """What the messages of a WebSocket that `request` opened must not contain, and what is replaced in them."""
        known = self.known(request.host, request.port)
        usable = [one for one in known.usable if "body" in one.places] if request.scheme == "https" else []
        return known.forbidden, {one.placeholder: value for one in usable if (value := self.learn(one)) is not None}

    def name_of(self, word: bytes) -> str:
        """The name of the secret that this placeholder is for."""
        return self._names[word][0]

    def unwritable(self, word: bytes, why: str) -> Denied:
        """The refusal of a request into which a value cannot be written."""
        name, setting = self._names.get(word, ("?", RULE))
        return Denied(setting, "the secret {name} cannot be inserted: {why}", name=name, why=why)

    def without_value(self, one: Held) -> Denied:
        """The refusal of a request that needs a missing value."""
        return no_value(one.name, one.setting, one.why)

    def refusal(self, word: bytes, host: str) -> Denied:
        """The refusal of a request with a placeholder that must not go to `host`."""
        name, setting = self._names.get(word, ("?", RULE))
        current = next((one for one in self._held if one.placeholder == word), None)
        if current is None:
            return Denied(setting, "the secret {name} has been revoked", name=name)
        if current.endpoint_only:
            return endpoint_only(name, setting)
        return Denied(
            setting,
            "the secret {name} must not be sent to {host}; to allow it, add {host!r} to {setting}.hosts",
            name=name,
            host=host,
            setting=setting,
        )

    def refuse_values(self, data: bytes) -> None:
        """Raises Denied when `data` contains a value."""
        found = self.values.find(data)
        if found:
            name = found[0].name
            raise Denied(
                self._names.get(found[0].placeholder, (name, f"{RULE}.{name}"))[1],
                "the request contains the value of the secret {name}; send its placeholder instead",
                name=name,
            )


def _collides(one: Held, held: list[Held]) -> bool:
    """Whether a value could be read off its placeholder, or the other way round."""
    values = [other.value for other in held if other.value is not None]
    return any(value in one.placeholder or one.placeholder in value for value in values)
