"""Credentials the tenant never sees: it holds a placeholder, and the value is put in on the way out.

A value goes only to a host its secret names, only over TLS that has been verified, only in the places it is
meant for. A placeholder on its way to anybody else stops the request. What comes back from a host that got a
value is searched for it, and turned back.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from sandbox.errors import ConfigError, Denied
from sandbox.network.bodies import (
    Finder,
    Guarded,
    Replacer,
    decoded,
    decompressor,
    replaced,
    replaced_in,
    unescaped,
)
from sandbox.network.message import EMPTY
from sandbox.network.values import resolve
from sandbox.policy.hosts import HostSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sandbox.config.model import Secret
    from sandbox.network.message import Pair, Request, Response

RULE = "network.secrets"
SCHEMES_IN_BASE64 = ("basic",)
# A value this long may be passed in part when it begins a piece's end (see Replacer): three bytes tell nobody
# anything.
LONG_VALUE, LENIENT = 16, 3
# What carries credentials, for secrets that want no other beside them.
CREDENTIAL_FIELDS = re.compile(
    rb"(?i)^(authorization|cookie|.*(api|auth|access|private|secret)[-_]?(key|token).*|.*-token)$"
)
CREDENTIAL_KEYS = re.compile(
    r"(?i)(.*[-_.])?(key|apikey|token|secret|password|sig|signature|access[-_]?token|api[-_]?key)"
)
MAX_HOSTS = 1024  # whose answers are remembered


class Credential:
    """One secret, ready for use."""

    __slots__ = ("name", "value", "placeholder", "hosts", "places", "exclusive", "spellings")

    def __init__(self, name: str, secret: Secret, value: str, placeholder: str) -> None:
        self.name = name
        self.value = value.encode()
        self.placeholder = placeholder.encode()
        self.hosts = HostSet(secret.hosts, f"network.secrets.{name}.hosts")
        self.places = frozenset(secret.places)
        self.exclusive = secret.exclusive
        self.spellings = _spellings(self.value, self.placeholder)

    def __repr__(self) -> str:
        return f"Credential({self.name!r})"


class Secrets:
    """All secrets of one sandbox, and every placeholder it ever gave out."""

    def __init__(self, secrets: Mapping[str, Secret], placeholders: Mapping[str, str]) -> None:
        self._placeholders = dict(placeholders)
        self._names: dict[bytes, str] = {}  # of every placeholder, also revoked ones
        self._credentials: list[Credential] = []
        self._by_host: dict[tuple[str, int], tuple[list[Credential], list[bytes]]] = {}
        self.update(secrets)

    def update(self, secrets: Mapping[str, Secret]) -> None:
        """New values, new hosts, secrets that are gone. Raises ConfigError and changes nothing when one is
        unusable."""
        values = resolve(secrets)
        credentials = [
            Credential(name, secret, values[name], self._placeholder(name, secret)) for name, secret in secrets.items()
        ]
        for one in credentials:
            if len(one.placeholder) < 8:
                raise ConfigError(
                    "is too short to be told from other text: at least 8 characters",
                    path=f"network.secrets.{one.name}.placeholder",
                )
        self._credentials = credentials
        for one in credentials:
            self._placeholders[one.name] = one.placeholder.decode()
            self._names[one.placeholder] = one.name
        self._by_host = {}

    def _placeholder(self, name: str, secret: Secret) -> str:
        if secret.placeholder is not None:
            return secret.placeholder
        if name not in self._placeholders:
            from sandbox.network.placeholders import placeholders

            self._placeholders.update(placeholders({name: secret}))
        return self._placeholders[name]

    def __bool__(self) -> bool:
        return bool(self._names)

    def about(self, host: str, port: int) -> list[Credential]:
        """Those that may be sent to `host`."""
        return self._known(host, port)[0]

    def _forbidden(self, host: str, port: int) -> list[bytes]:
        """The placeholders that must not be sent to `host`."""
        return self._known(host, port)[1]

    def _known(self, host: str, port: int) -> tuple[list[Credential], list[bytes]]:
        known = self._by_host.get((host, port))
        if known is None:
            usable = [one for one in self._credentials if one.hosts.allows(host, port)]
            allowed = {one.placeholder for one in usable}
            known = usable, [word for word in self._names if word not in allowed]
            if len(self._by_host) >= MAX_HOSTS:
                self._by_host.clear()
            self._by_host[host, port] = known
        return known

    def scrub(self, text: str) -> str:
        """`text` without any value: for addresses and reasons on their way into the record."""
        for one in self._credentials:
            for shown, instead in one.spellings.items():
                text = text.replace(shown.decode("latin-1"), instead.decode("latin-1"))
        return text

    def refuse_in(self, data: bytes, host: str, port: int) -> None:
        """Raises Denied when `data` (a request's head) holds a placeholder that must not go to `host`."""
        found = _word_in(data, self._forbidden(host, port))
        if found is not None:
            raise self._refusal(found, host)

    async def put_in(self, request: Request) -> dict[bytes, bytes]:
        """Makes `request` fit to be sent: values for placeholders, or Denied. Nothing has been sent when it
        returns.

        Returns what the answer must be searched for: each spelling of a value, and what to put in its place.
        """
        if not self._names:
            return {}
        host, port = request.host, request.port
        forbidden = self._forbidden(host, port)
        _refuse(self, request, forbidden)
        usable = self.about(host, port)
        if usable and request.scheme != "https":
            self._refuse_unencrypted(request, usable)
            usable = []
        exclusive = [one for one in usable if one.exclusive]
        if exclusive:
            _refuse_other_credentials(request, usable, exclusive[0].name)
        injected: dict[bytes, bytes] = {}
        for one in usable:
            if "header" in one.places:
                request.headers.pairs = [_filled(pair, one, injected) for pair in request.headers.pairs]
            if "query" in one.places and request.query:
                query = request.query.encode("latin-1")
                value = quote(one.value, safe="").encode()
                for spelling in {one.placeholder, quote(one.placeholder, safe="").encode()}:
                    query = query.replace(spelling, value)
                request.query = query.decode("latin-1")
            injected.update(one.spellings)
        if usable:
            # What comes back must be readable, so that values in it can be found.
            request.headers.set("Accept-Encoding", "identity")
        await self._guard_body(request, forbidden, usable)
        return injected

    async def _guard_body(self, request: Request, forbidden: list[bytes], usable: list[Credential]) -> None:
        if request.stream is EMPTY:
            return
        if forbidden:
            inflate = decompressor(request.headers)
            guarded = Guarded(
                request.stream, forbidden, inflate, lambda word: self._refusal(word, request.host), request.allowance
            )
            await guarded.inspect()
            request.stream = guarded
        words = {one.placeholder: one.value for one in usable if "body" in one.places}
        if words:
            request.stream = replaced(decoded(request.headers, request.stream), words)
            request.headers.remove("Content-Length")  # the value is not as long as its placeholder

    def clean(self, response: Response, words: Mapping[bytes, bytes]) -> None:
        """Turns values in `response` back into placeholders, as it passes."""
        if not words:
            return
        response.headers.pairs = cleaned(response.headers.pairs, words)
        if response.stream is EMPTY:
            return
        body = decoded(response.headers, response.stream)
        response.stream = replaced(body, words, lenient=_lenient(words))
        response.headers.remove("Content-Length")
        if response.stream.length is not None:
            response.headers.set("Content-Length", str(response.stream.length))

    def message_guard(self, request: Request) -> MessageGuard:
        """What the messages of a WebSocket, whose handshake `request` was, are looked into with."""
        usable = self.about(request.host, request.port) if request.scheme == "https" else []
        return MessageGuard(
            forbidden=self._forbidden(request.host, request.port),
            refusal=lambda word: self._refusal(word, request.host),
            fill={one.placeholder: one.value for one in usable if "body" in one.places},
            turn_back={word: instead for one in usable for word, instead in one.spellings.items()},
        )

    def _refusal(self, word: bytes, host: str) -> Denied:
        name = self._names.get(word, "?")
        current = any(one.placeholder == word for one in self._credentials)
        why = f"must not be sent to {host}" if current else "has been revoked"
        return Denied(
            f"{RULE}.{name}",
            f"the secret {name} {why}" + (f"; to allow it, add {host!r} to {RULE}.{name}.hosts" if current else ""),
        )

    def _refuse_unencrypted(self, request: Request, usable: list[Credential]) -> None:
        for one in usable:
            if _word_in(_head(request), [one.placeholder]) is not None:
                raise Denied(f"{RULE}.{one.name}", f"the secret {one.name} is sent over https only")


def cleaned(pairs: list[Pair], words: Mapping[bytes, bytes]) -> list[Pair]:
    """Header fields with `words` turned back."""
    return [(name, replaced_in(value, words)) for name, value in pairs]


class MessageGuard:
    """For each message of a WebSocket, a function from its pieces to what may be passed on."""

    def __init__(
        self,
        *,
        forbidden: list[bytes],
        refusal: Callable[[bytes], Denied],
        fill: Mapping[bytes, bytes],
        turn_back: Mapping[bytes, bytes],
    ) -> None:
        self._forbidden, self._refusal = forbidden, refusal
        self._fill, self._turn_back = fill, turn_back

    def outgoing(self) -> Callable[[bytes, bool], bytes]:
        """For one message to upstream; it raises Denied."""
        finder, change = Finder(self._forbidden), _replacement(self._fill, 0)
        held = b""

        def pass_on(data: bytes, last: bool) -> bytes:
            nonlocal held
            found = finder.feed(data)
            if found is not None:
                raise self._refusal(found)
            held += data
            ready = len(held) if last else max(0, len(held) - finder.pending())
            while 0 < ready < len(held) and held[ready] & 0xC0 == 0x80:
                ready -= 1  # never within a letter: text is sent as text
            data, held = held[:ready], held[ready:]
            return change(data, last)

        return pass_on

    def incoming(self) -> Callable[[bytes, bool], bytes]:
        """For one message to the tenant."""
        return _replacement(self._turn_back, _lenient(self._turn_back))


def _replacement(words: Mapping[bytes, bytes], lenient: int) -> Callable[[bytes, bool], bytes]:
    if not words:
        return lambda data, last: data
    replacer = Replacer(words, lenient=lenient)
    return lambda data, last: replacer.feed(data) + (replacer.flush() if last else b"")


def _lenient(words: Mapping[bytes, bytes]) -> int:
    return LENIENT if words and min(map(len, words)) >= LONG_VALUE else 0


def _refuse(secrets: Secrets, request: Request, forbidden: list[bytes]) -> None:
    found = _word_in(_head(request), forbidden)
    if found is not None:
        raise secrets._refusal(found, request.host)


def _refuse_other_credentials(request: Request, usable: list[Credential], name: str) -> None:
    """An allowed host is a way out for whoever has an account of his own there. Raises Denied for a credential that
    is none of ours."""
    words = [one.placeholder for one in usable]
    for field, value in request.headers.pairs:
        if CREDENTIAL_FIELDS.search(field) and not any(word in value + _basic(value)[1] for word in words):
            reason = (
                f"{request.host} is used with the sandbox's own credentials only; {field.decode('latin-1')} is another"
            )
            raise Denied(f"{RULE}.{name}", reason)
    for part in request.query.split("&"):
        key, _, given = part.partition("=")
        if CREDENTIAL_KEYS.fullmatch(key) and given and not any(word.decode() in given for word in words):
            reason = (
                f"{request.host} is used with the sandbox's own credentials only; {key!r} in the address is another"
            )
            raise Denied(f"{RULE}.{name}", reason)


def _head(request: Request) -> bytes:
    fields = [name + b": " + value for name, value in request.headers.pairs]
    decoded_fields = [plain for _, value in request.headers.pairs if (plain := _basic(value)[1])]
    return b"\n".join([request.target.encode("latin-1"), *fields, *decoded_fields])


def _word_in(data: bytes, words: Iterable[bytes]) -> bytes | None:
    """The first of `words` in `data`, also when escaped once or twice."""
    once = unescaped(data)
    views = {data, once, unescaped(once)}
    return next((word for word in words for view in views if word in view), None)


def _filled(pair: Pair, one: Credential, injected: dict[bytes, bytes]) -> Pair:
    """A header field with the value in the placeholder's place; inside Basic credentials too."""
    name, value = pair
    scheme, plain = _basic(value)
    if one.placeholder in plain:
        changed = scheme + b" " + base64.b64encode(plain.replace(one.placeholder, one.value))
        # An echo of the whole field would otherwise give the value away to anybody who can decode base64.
        injected[changed.partition(b" ")[2]] = value.partition(b" ")[2].strip()
        return name, changed
    return name, value.replace(one.placeholder, one.value)


def _basic(value: bytes) -> tuple[bytes, bytes]:
    """Scheme and decoded credentials of a `Basic` field; empty when it is none."""
    scheme, _, encoded = value.strip().partition(b" ")
    if scheme.lower().decode("latin-1") not in SCHEMES_IN_BASE64:
        return b"", b""
    try:
        return scheme, base64.b64decode(encoded.strip() + b"==", validate=False)
    except binascii.Error:
        return b"", b""


def _spellings(value: bytes, placeholder: bytes) -> dict[bytes, bytes]:
    """How a value may come back (plainly, in JSON, in an address), each with what to put in its place."""
    in_json = json.dumps(value.decode()).encode()[1:-1]
    ways = {
        value,
        in_json,
        in_json.replace(b"/", b"\\/"),
        quote(value, safe="").encode(),
        quote(value).encode(),
    }
    return dict.fromkeys(sorted(ways, key=len, reverse=True), placeholder)
