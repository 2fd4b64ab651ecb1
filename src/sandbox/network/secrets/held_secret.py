"""What the gate holds for a tenant: a placeholder, where its value may go, and the value as it is now."""

from __future__ import annotations

from sandbox.errors import ConfigError, Denied
from sandbox.network.secrets.missing_value import Missing
from sandbox.network.secrets.sources import check, read
from sandbox.policy.hosts import HostSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Protocol

    from sandbox.config.model import Secret
    from sandbox.network.credentials.token import CredentialToken

    class Held(Protocol):
        """One placeholder and what it stands for."""

        name: str
        setting: str  # in messages and as a rule
        placeholder: bytes
        hosts: HostSet
        places: frozenset[str]
        endpoint_only: bool  # sent only to a token endpoint, by `credentials/token_endpoint.py`

        @property
        def value(self) -> bytes | None: ...

        @property
        def why(self) -> str | None:
            """Why there is no value."""

        async def ready(self) -> bool:
            """Renews the value if that is due. Returns whether it has changed."""


RULE = "network.secrets"
RETRY = 30.0  # seconds until a source that failed is asked again
EARLY, EARLY_PART = 60.0, 0.2  # seconds before its end that a value is renewed; the last part of a shorter life


class HeldSecret:
    """One configured secret. Raises ConfigError for a mistake in it. A source that has no value now is not a mistake:
    `why` then says why."""

    endpoint_only = False

    def __init__(self, name: str, secret: Secret, placeholder: str, setting: str | None = None) -> None:
        self.name = name
        self.setting = setting or f"{RULE}.{name}"
        check(secret, self.setting)
        self.secret = secret
        self.placeholder = placeholder.encode()
        self.hosts = HostSet(secret.hosts, f"{self.setting}.hosts", near_secret=True)
        self.places = frozenset(secret.places)
        self.value: bytes | None = None
        self.why: str | None = None
        self._end: float | None = None
        self._renew = self._retry = 0.0
        self._seen: object = None
        self._renewing: asyncio.Task[None] | None = None
        self.load()

    def load(self) -> None:
        """Reads the source. Raises ConfigError for an unusable value and keeps the old one."""
        from time import time

        seen = self._signature()
        try:
            value, end = read(self.secret, self.setting)
        except Missing as problem:
            self._retry = time() + RETRY
            if self.value is None or self._over():
                self.value, self.why = None, problem.problem
            return
        self._seen = seen
        self.value, self.why, self._end = value.encode(), None, end
        if end is not None:
            life = end - time()
            self._renew = end - min(EARLY, life * EARLY_PART)

    def _over(self) -> bool:
        from time import time

        return self._end is not None and time() >= self._end

    def _signature(self) -> object:
        """A value that differs when the file has changed; None for other sources."""
        if self.secret.from_file is None:
            return None
        import os

        try:
            found = os.stat(os.path.expanduser(self.secret.from_file))
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _due(self) -> bool:
        from time import time

        if self.secret.from_file is not None:
            return self._signature() != self._seen
        if self.secret.from_command is None and self.secret.from_keyring is None:
            return False
        now = time()
        return now >= self._retry and (self.value is None or (self._end is not None and now >= self._renew))

    async def ready(self) -> bool:
        """See Held. While a value is being renewed, requests use the old one as long as that is valid; only a changed
        file is always waited for."""
        import asyncio

        before = self.value
        if self._renewing is None and self._due():
            self._renewing = asyncio.ensure_future(self._load_apart())
        if self._renewing is not None and (self.value is None or self._over() or self.secret.from_file is not None):
            await asyncio.shield(self._renewing)
        return self.value != before

    async def _load_apart(self) -> None:
        from sandbox.network.threads import in_thread

        try:
            await in_thread(self.load)
        except ConfigError as problem:  # the source's new value is unusable
            if self.value is None or self._over():
                self.value, self.why = None, problem.problem
        finally:
            self._renewing = None

    def __repr__(self) -> str:
        return f"Credential({self.name!r})"


class HeldToken:
    """A token of a credential file, under one of its placeholders."""

    def __init__(self, token: CredentialToken, placeholder: bytes) -> None:
        self._token = token
        self.placeholder = placeholder
        self.name, self.setting = token.name, token.setting
        self.hosts, self.places, self.endpoint_only = token.hosts, token.places, token.endpoint_only

    @property
    def value(self) -> bytes | None:
        return self._token.value

    @property
    def why(self) -> str | None:
        return self._token.why

    async def ready(self) -> bool:
        """Does nothing: `injection.put_in` reads changed files first."""
        return False

    def __repr__(self) -> str:
        return f"HeldToken({self.name!r})"


def no_value(name: str, setting: str, why: object) -> Denied:
    """The refusal of a request that needs a missing value."""
    return Denied(setting, "the secret {name} has no value: {why}", name=name, why=why or "?")


def endpoint_only(name: str, setting: str) -> Denied:
    """The refusal of a refresh token on its way to anything but its token endpoint."""
    return Denied(setting, "the secret {name} is sent only to its token endpoint", name=name)
