"""Credentials that the tenant never sees: it has a placeholder, and the gate inserts the value on the way out.

A value goes only to a host that its secret names, only over verified TLS, and only into the places it is meant for. A
placeholder on its way to any other host stops the request. Every response is searched for every value that the sandbox
was ever given, and each is replaced by its placeholder.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING
from urllib.parse import quote

from sandbox.errors import ConfigError, Denied
from sandbox.network.http.body import EMPTY
from sandbox.network.http.compression import READABLE, content_encodings, decoded, decompressor
from sandbox.network.secrets.fill_body import filled
from sandbox.network.secrets.guarded_body import Guarded
from sandbox.network.secrets.held import RULE, Credential
from sandbox.network.secrets.placeholder_search import word_in
from sandbox.network.secrets.placeholders import check_placeholder
from sandbox.network.secrets.scrubbing import scrubbed_body, scrubbed_pairs
from sandbox.network.secrets.spellings import Values

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from typing import Any, TypeVar

    from sandbox.config.model import Secret
    from sandbox.network.credentials.logins import Logins
    from sandbox.network.http.headers import Pair
    from sandbox.network.http.message import Request, Response
    from sandbox.network.secrets.held import Held
    from sandbox.policy.hosts import HostSet

    T = TypeVar("T")

SCHEMES_IN_BASE64 = ("basic",)
FINISH = 10.0  # seconds that an end waits for tokens that are being renewed
MAX_HOSTS = 1024  # whose answers are remembered
MAX_OVERLAP = 8192  # how much of a request's body is remembered to find a value that is split


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
        self._unfinished: set[asyncio.Task[Any]] = set()
        self.complain = complain or (lambda setting, error: None)  # tokens could not be written
        self.update(secrets)

    def update(self, secrets: Mapping[str, Secret]) -> None:
        """Replaces the secrets. Raises ConfigError and changes nothing when one is invalid."""
        configured: list[Held] = [
            Credential(name, secret, self._placeholder(name, secret)) for name, secret in secrets.items()
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
        """From now on these are the secrets."""
        self._past += [one.hosts for one in self._held if one not in held]
        self._held = held
        for one in held:
            self._names[one.placeholder] = one.name, one.setting
            self._learn(one)
        if self.logins is not None:
            self._seen_logins = self.logins.version
            for value, placeholder in self.logins.hidden().items():
                self.values.add("credentials", value.encode(), placeholder)
                self._names.setdefault(placeholder, ("credentials", "credentials"))
        self._by_host = {}

    def _learn(self, one: Held) -> bytes | None:
        """Its value now, which is looked for from now on."""
        value = one.value
        if value is not None:
            self.values.add(one.name, value, one.placeholder)
        return value

    def follow_logins(self) -> None:
        """Sees what has changed in credential files. A token that collides with a placeholder is not used."""
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

    def __bool__(self) -> bool:
        return bool(self._names)

    def _known(self, host: str, port: int) -> Known:
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

    def unfinished(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """`work` as a task that goes on whoever waits for it; `finish` does."""
        import asyncio

        task = asyncio.ensure_future(work)
        self._unfinished.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._unfinished.discard(task)
        if not task.cancelled():
            task.exception()  # told to whoever waited, if anybody did

    async def finish(self) -> None:
        """Waits, for a while, until nothing is unfinished: new tokens that nobody has written down would be lost."""
        import asyncio

        if self._unfinished:
            await asyncio.wait(self._unfinished, timeout=FINISH)

    def refuse_in(self, data: bytes, host: str, port: int) -> None:
        """Raises Denied when `data`, a request's head, contains a value or a placeholder that must not go to `host`."""
        self.refuse_values(data)
        found = word_in(data, self._known(host, port).forbidden)
        if found is not None:
            raise self.refusal(found, host)

    async def put_in(self, request: Request, besides: bytes | None = None) -> None:
        """Replaces placeholders in `request` by values. Raises Denied. Nothing has been sent when it returns.

        `besides`: a placeholder that may be in its body all the same, because the caller replaces it."""
        if not self._names:
            return
        self.follow_logins()
        known = self._known(request.host, request.port)
        self.refuse_in(_head(request), request.host, request.port)
        usable = known.usable
        if usable and request.scheme != "https":
            self._refuse_unencrypted(request, usable)
            usable = []
        values = await self._values_for(request, usable)
        for one, value in values:
            if "header" in one.places:
                request.headers.pairs = [_filled(pair, one.placeholder, value) for pair in request.headers.pairs]
            if "query" in one.places and request.query:
                query = request.query.encode("latin-1")
                request.query = query.replace(one.placeholder, quote(value, safe="").encode()).decode("latin-1")
        self._ask_for_readable(request, known)
        await self._guard_body(request, known, values, usable, besides)

    async def _values_for(self, request: Request, usable: list[Held]) -> list[tuple[Held, bytes]]:
        """The values that `request` may need, as they are now. Raises Denied for one that it needs and nobody has."""
        found: list[tuple[Held, bytes]] = []
        for one in usable:
            there = word_in(_head(request), [one.placeholder]) is not None
            in_body = "body" in one.places and request.stream is not EMPTY
            if not (there or in_body):
                continue
            await one.ready()
            value = self._learn(one)
            if value is not None:
                found.append((one, value))
            elif there:
                raise self._without_value(one)
        return found

    def _ask_for_readable(self, request: Request, known: Known) -> None:
        """Asks for a complete, uncompressed response, so that values in it can be found."""
        headers = request.headers
        if known.confided:
            headers.set("Accept-Encoding", "identity")
            headers.remove("Range")
            headers.remove("If-Range")
            if "grpc-accept-encoding" in headers:
                headers.set("grpc-accept-encoding", "identity")
        elif "Accept-Encoding" in headers:
            asked = ",".join(headers.get_all("Accept-Encoding")).lower()
            headers.set("Accept-Encoding", ", ".join(one for one in ("gzip", "deflate") if one in asked) or "identity")

    async def _guard_body(
        self,
        request: Request,
        known: Known,
        values: list[tuple[Held, bytes]],
        usable: list[Held],
        besides: bytes | None,
    ) -> None:
        if request.stream is EMPTY:
            return
        inflate = decompressor(request.headers)
        empty = {one.placeholder: one for one in usable if "body" in one.places and one.value is None}

        def refusal(word: bytes) -> Denied:
            return self._without_value(empty[word]) if word in empty else self.refusal(word, request.host)

        guarded = Guarded(
            request.stream,
            [*(word for word in known.forbidden if word != besides), *empty],
            inflate,
            refusal,
            request.allowance,
            self.looking(),
        )
        await guarded.inspect()
        request.stream = guarded
        words = {one.placeholder: value for one, value in values if "body" in one.places}
        if words:
            request.stream = filled(request.headers, request.stream, words, self.unwritable)
            if isinstance(request.stream, Guarded):
                await request.stream.inspect()

    def looking(self) -> Callable[[bytes], None]:
        """A function that is called with each piece of an outgoing stream, and raises Denied when it has seen a value.
        Nothing is held back for that: a delay would tell the sender that it sent part of a value."""
        before = b""

        def look(data: bytes) -> None:
            nonlocal before
            data = before + data
            self.refuse_values(data)
            before = data[-min(self.values.longest, MAX_OVERLAP) :]

        return look

    def clean(self, response: Response, request: Request) -> None:
        """Replaces values in `response` by placeholders, as it passes. Raises Denied for a response that cannot be
        inspected, from a host that a secret is or was for."""
        if not self.values:
            return
        confided = self._known(request.host, request.port).confided
        response.headers.pairs = self.cleaned(response.headers.pairs)
        if response.stream is EMPTY:
            return
        if confided and response.status == 206:
            raise Denied(
                RULE,
                "{host} answered with partial content (206), which could split a secret's value in two",
                host=request.host,
            )
        encodings = content_encodings(response.headers)
        if not confided and encodings and (len(encodings) > 1 or encodings[0] not in READABLE):
            return
        body = decoded(response.headers, response.stream)
        # Hosts without a secret have no reason to send a value, so their Content-Length is kept.
        kept = not confided and body.length is not None
        response.stream = scrubbed_body(
            body, self.values, response.headers, request, same_length=kept, readable=confided
        )
        response.headers.remove("Content-Length")
        if response.stream.length is not None:
            response.headers.set("Content-Length", str(response.stream.length))

    def cleaned(self, pairs: list[Pair]) -> list[Pair]:
        """Header fields without values."""
        return scrubbed_pairs(pairs, self.values) if self.values else pairs

    def words_for(self, request: Request) -> tuple[list[bytes], dict[bytes, bytes]]:
        """What the messages of a WebSocket that `request` opened must not contain, and what is replaced in them."""
        known = self._known(request.host, request.port)
        usable = [one for one in known.usable if "body" in one.places] if request.scheme == "https" else []
        return known.forbidden, {one.placeholder: value for one in usable if (value := self._learn(one)) is not None}

    def unwritable(self, word: bytes, why: str) -> Denied:
        """The refusal of a request into which a value cannot be written."""
        name, setting = self._names.get(word, ("?", RULE))
        return Denied(setting, "the secret {name} cannot be inserted: {why}", name=name, why=why)

    def _without_value(self, one: Held) -> Denied:
        return Denied(one.setting, "the secret {name} has no value: {why}", name=one.name, why=one.why or "?")

    def refusal(self, word: bytes, host: str) -> Denied:
        """The refusal of a request with a placeholder that must not go to `host`."""
        name, setting = self._names.get(word, ("?", RULE))
        current = next((one for one in self._held if one.placeholder == word), None)
        if current is None:
            return Denied(setting, "the secret {name} has been revoked", name=name)
        if current.endpoint_only:
            return Denied(setting, "the secret {name} goes to its token endpoint alone", name=name)
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

    def _refuse_unencrypted(self, request: Request, usable: list[Held]) -> None:
        for one in usable:
            if word_in(_head(request), [one.placeholder]) is not None:
                raise Denied(one.setting, "the secret {name} is sent over https only", name=one.name)


def _collides(one: Held, held: list[Held]) -> bool:
    """Whether a value could be read off its placeholder, or the other way round."""
    values = [other.value for other in held if other.value is not None]
    return any(value in one.placeholder or one.placeholder in value for value in values)


def _head(request: Request) -> bytes:
    fields = [name + b": " + value for name, value in request.headers.pairs]
    decoded_fields = [plain for _, value in request.headers.pairs if (plain := _basic(value)[1])]
    return b"\n".join([request.target.encode("latin-1"), *fields, *decoded_fields])


def _filled(pair: Pair, placeholder: bytes, secret: bytes) -> Pair:
    """A header field with the value in place of the placeholder, also inside Basic credentials."""
    name, value = pair
    if name.lower() == b"sec-websocket-key":
        return pair  # WebSocket servers answer with its hash, which would allow guessing
    scheme, plain = _basic(value)
    if placeholder in plain:
        return name, scheme + b" " + base64.b64encode(plain.replace(placeholder, secret))
    return name, value.replace(placeholder, secret)


def _basic(value: bytes) -> tuple[bytes, bytes]:
    """Scheme and decoded credentials of a `Basic` field; empty for any other."""
    scheme, _, encoded = value.strip().partition(b" ")
    if scheme.lower().decode("latin-1") not in SCHEMES_IN_BASE64:
        return b"", b""
    try:
        return scheme, base64.b64decode(encoded.strip() + b"==", validate=False)
    except binascii.Error:
        return b"", b""
