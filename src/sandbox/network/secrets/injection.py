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

from sandbox.errors import ConfigError, Denied, Message
from sandbox.network.http.body import EMPTY
from sandbox.network.http.compression import READABLE, content_encodings, decoded, decompressor
from sandbox.network.secrets.fill_body import filled, written_in_message
from sandbox.network.secrets.guarded_body import Guarded
from sandbox.network.secrets.placeholder_search import Finder, Replacer, unescaped
from sandbox.network.secrets.placeholders import check_placeholder
from sandbox.network.secrets.scrubbing import Scrubber, scrubbed_body, scrubbed_pairs
from sandbox.network.secrets.sources import resolve
from sandbox.network.secrets.spellings import Values
from sandbox.policy.hosts import HostSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sandbox.config.model import Secret
    from sandbox.network.http.headers import Pair
    from sandbox.network.http.message import Request, Response

RULE = "network.secrets"
SCHEMES_IN_BASE64 = ("basic",)
MAX_HOSTS = 1024  # whose answers are remembered
MAX_OVERLAP = 8192  # how much of a request's body is remembered to find a value that is split


class Credential:
    """One secret, ready for use."""

    __slots__ = ("name", "value", "placeholder", "hosts", "places")

    def __init__(self, name: str, secret: Secret, value: str, placeholder: str) -> None:
        self.name = name
        self.value = value.encode()
        self.placeholder = placeholder.encode()
        self.hosts = HostSet(secret.hosts, f"{RULE}.{name}.hosts", near_secret=True)
        self.places = frozenset(secret.places)

    def __repr__(self) -> str:
        return f"Credential({self.name!r})"


class Known:
    """What the secrets say about one host and port."""

    __slots__ = ("usable", "forbidden", "confided")

    def __init__(self, usable: list[Credential], forbidden: list[bytes], confided: bool) -> None:
        self.usable = usable
        self.forbidden = forbidden  # placeholders that must not be sent there
        self.confided = confided  # whether a secret is, or ever was, for this host


class Secrets:
    """All secrets of one sandbox, every placeholder it ever handed out and every value it was ever given."""

    def __init__(self, secrets: Mapping[str, Secret], placeholders: Mapping[str, str]) -> None:
        self._placeholders = dict(placeholders)
        self._names: dict[bytes, str] = {}  # by placeholder, revoked ones included
        self.values = Values()
        self._credentials: list[Credential] = []
        self._past: list[HostSet] = []  # hosts that secrets were ever for
        self._by_host: dict[tuple[str, int], Known] = {}
        self.update(secrets)

    def update(self, secrets: Mapping[str, Secret]) -> None:
        """Replaces the secrets. Raises ConfigError and changes nothing when one is invalid."""
        values = resolve(secrets)
        credentials = [
            Credential(name, secret, values[name], self._placeholder(name, secret)) for name, secret in secrets.items()
        ]
        for one in credentials:
            check_placeholder(one.placeholder.decode(), f"{RULE}.{one.name}.placeholder")
            if any(other.value in one.placeholder or one.placeholder in other.value for other in credentials):
                path = f"{RULE}.{one.name}.placeholder"
                raise ConfigError("must not contain a secret's value or be part of one: tenants can see it", path=path)
        self._past += [one.hosts for one in self._credentials]
        self._credentials = credentials
        for one in credentials:
            self._placeholders[one.name] = one.placeholder.decode()
            self._names[one.placeholder] = one.name
            self.values.add(one.name, one.value, one.placeholder)
        self._by_host = {}

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
            usable = [one for one in self._credentials if one.hosts.allows(host, port)]
            allowed = {one.placeholder for one in usable}
            confided = bool(usable) or any(one.names(host) for one in self._ever())
            known = Known(usable, [word for word in self._names if word not in allowed], confided)
            if len(self._by_host) >= MAX_HOSTS:
                self._by_host.clear()
            self._by_host[host, port] = known
        return known

    def _ever(self) -> Iterable[HostSet]:
        yield from self._past
        for one in self._credentials:
            yield one.hosts

    def scrub(self, text: str) -> str:
        """`text` without any value: for URLs and reasons in the record."""
        return self.values.scrubbed(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def refuse_in(self, data: bytes, host: str, port: int) -> None:
        """Raises Denied when `data`, a request's head, contains a value or a placeholder that must not go to `host`."""
        self._refuse_values(data)
        found = _word_in(data, self._known(host, port).forbidden)
        if found is not None:
            raise self._refusal(found, host)

    async def put_in(self, request: Request) -> None:
        """Replaces placeholders in `request` by values. Raises Denied. Nothing has been sent when it returns."""
        if not self._names:
            return
        known = self._known(request.host, request.port)
        self.refuse_in(_head(request), request.host, request.port)
        usable = known.usable
        if usable and request.scheme != "https":
            self._refuse_unencrypted(request, usable)
            usable = []
        for one in usable:
            if "header" in one.places:
                request.headers.pairs = [_filled(pair, one) for pair in request.headers.pairs]
            if "query" in one.places and request.query:
                query = request.query.encode("latin-1")
                request.query = query.replace(one.placeholder, quote(one.value, safe="").encode()).decode("latin-1")
        self._ask_for_readable(request, known)
        await self._guard_body(request, known, usable)

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

    async def _guard_body(self, request: Request, known: Known, usable: list[Credential]) -> None:
        if request.stream is EMPTY:
            return
        inflate = decompressor(request.headers)
        guarded = Guarded(
            request.stream,
            known.forbidden,
            inflate,
            lambda word: self._refusal(word, request.host),
            request.allowance,
            self._looking(),
        )
        await guarded.inspect()
        request.stream = guarded
        words = {one.placeholder: one.value for one in usable if "body" in one.places}
        if words:
            request.stream = filled(request.headers, request.stream, words, self._unwritable)
            if isinstance(request.stream, Guarded):
                await request.stream.inspect()

    def _looking(self) -> Callable[[bytes], None]:
        """A function that is called with each piece of an outgoing stream, and raises Denied when it has seen a value.
        Nothing is held back for that: a delay would tell the sender that it sent part of a value."""
        before = b""

        def look(data: bytes) -> None:
            nonlocal before
            data = before + data
            self._refuse_values(data)
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

    def message_guard(self, request: Request) -> MessageGuard:
        """The guard for the messages of a WebSocket that `request` opened."""
        known = self._known(request.host, request.port)
        usable = known.usable if request.scheme == "https" else []
        words = {one.placeholder: one.value for one in usable if "body" in one.places}
        return MessageGuard(self, request.host, known.forbidden, words)

    def _unwritable(self, word: bytes, why: str) -> Denied:
        name = self._names.get(word, "?")
        return Denied(f"{RULE}.{name}", "the secret {name} cannot be inserted: {why}", name=name, why=why)

    def _refusal(self, word: bytes, host: str) -> Denied:
        name = self._names.get(word, "?")
        current = any(one.placeholder == word for one in self._credentials)
        if not current:
            return Denied(f"{RULE}.{name}", "the secret {name} has been revoked", name=name)
        return Denied(
            f"{RULE}.{name}",
            "the secret {name} must not be sent to {host}; to allow it, add {host!r} to {setting}.hosts",
            name=name,
            host=host,
            setting=f"{RULE}.{name}",
        )

    def _refuse_values(self, data: bytes) -> None:
        found = self.values.find(data)
        if found:
            name = found[0].name
            raise Denied(
                f"{RULE}.{name}",
                "the request contains the value of the secret {name}; send its placeholder instead",
                name=name,
            )

    def _refuse_unencrypted(self, request: Request, usable: list[Credential]) -> None:
        for one in usable:
            if _word_in(_head(request), [one.placeholder]) is not None:
                raise Denied(f"{RULE}.{one.name}", "the secret {name} is sent over https only", name=one.name)


class MessageGuard:
    """Makes, for each message of a WebSocket, a function from its pieces to what may be passed on."""

    def __init__(self, secrets: Secrets, host: str, forbidden: list[bytes], words: Mapping[bytes, bytes]) -> None:
        self._secrets, self._host, self._forbidden = secrets, host, forbidden
        written = {word: written_in_message(value) for word, value in words.items()}
        self._fill = {word: value for word, value in written.items() if value is not None}
        self._unwritable = [word for word, value in written.items() if value is None]

    def outgoing(self) -> Callable[[bytes, bool], bytes]:
        """For one message to upstream. The function raises Denied."""
        finder, change = Finder([*self._forbidden, *self._unwritable]), _replacement(self._fill)
        look = self._secrets._looking()
        held = b""

        def pass_on(data: bytes, last: bool) -> bytes:
            nonlocal held
            look(data)
            found = finder.feed(data)
            if found is not None:
                raise self._refused(found)
            held += data
            ready = len(held) if last else max(0, len(held) - finder.pending())
            while 0 < ready < len(held) and held[ready] & 0xC0 == 0x80:
                ready -= 1  # never within a character: text is sent as text
            data, held = held[:ready], held[ready:]
            return change(data, last)

        return pass_on

    def incoming(self) -> Callable[[bytes, bool], bytes]:
        """For one message to the tenant."""
        if not self._secrets.values:
            return lambda data, last: data
        scrubber = Scrubber(self._secrets.values)
        return lambda data, last: scrubber.feed(data) + (scrubber.flush() if last else b"")

    def refuse_in(self, payload: bytes) -> None:
        """Raises Denied for what a control frame to upstream must not contain. No value is inserted into one."""
        self._secrets._refuse_values(payload)
        found = _word_in(payload, self._forbidden)
        if found is not None:
            raise self._refused(found)

    def scrubbed(self, payload: bytes) -> bytes:
        """A control frame's payload to the tenant, without values."""
        return self._secrets.values.scrubbed(payload, same_length=True)

    def _refused(self, word: bytes) -> Denied:
        if word in self._unwritable:
            return self._secrets._unwritable(word, Message("its value cannot go into a WebSocket message unescaped"))
        return self._secrets._refusal(word, self._host)


def _replacement(words: Mapping[bytes, bytes]) -> Callable[[bytes, bool], bytes]:
    if not words:
        return lambda data, last: data
    replacer = Replacer(words)
    return lambda data, last: replacer.feed(data) + (replacer.flush() if last else b"")


def _head(request: Request) -> bytes:
    fields = [name + b": " + value for name, value in request.headers.pairs]
    decoded_fields = [plain for _, value in request.headers.pairs if (plain := _basic(value)[1])]
    return b"\n".join([request.target.encode("latin-1"), *fields, *decoded_fields])


def _word_in(data: bytes, words: Iterable[bytes]) -> bytes | None:
    """The first of `words` that is in `data`, plainly or escaped once or twice."""
    once = unescaped(data)
    views = {data, once, unescaped(once)}
    return next((word for word in words for view in views if word in view), None)


def _filled(pair: Pair, one: Credential) -> Pair:
    """A header field with the value in place of the placeholder, also inside Basic credentials."""
    name, value = pair
    if name.lower() == b"sec-websocket-key":
        return pair  # WebSocket servers answer with its hash, which would allow guessing
    scheme, plain = _basic(value)
    if one.placeholder in plain:
        return name, scheme + b" " + base64.b64encode(plain.replace(one.placeholder, one.value))
    return name, value.replace(one.placeholder, one.value)


def _basic(value: bytes) -> tuple[bytes, bytes]:
    """Scheme and decoded credentials of a `Basic` field; empty for any other."""
    scheme, _, encoded = value.strip().partition(b" ")
    if scheme.lower().decode("latin-1") not in SCHEMES_IN_BASE64:
        return b"", b""
    try:
        return scheme, base64.b64decode(encoded.strip() + b"==", validate=False)
    except binascii.Error:
        return b"", b""
