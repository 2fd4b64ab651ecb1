"""A request to a token endpoint (OAuth), and its answer: values stay outside, placeholders go in.

A refresh token is inserted only here: into the `refresh_token` of a request for new tokens, to exactly the entry's
hosts and paths, over TLS. Whatever comes back, every string that may be a token is replaced (`token_answer.py`), and
what belongs in the person's file is written there **before** the tenant gets its answer. Once a refresh token has been
sent, nothing that the tenant does can stop this: the old token may no longer be valid.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sandbox.errors import Denied
from sandbox.network.credentials.credential_store import FileLock, keep_more
from sandbox.network.credentials.formats import UnreadableCredentials
from sandbox.network.credentials.token_answer import MOST, RULE, rewritten, top_level
from sandbox.network.credentials.token_request import LOGIN_GRANTS, TokenRequest, same_path
from sandbox.network.credentials.token_request import MOST as MOST_REQUEST
from sandbox.network.http.body import EMPTY, Whole
from sandbox.network.http.compression import decoded
from sandbox.network.http.headers import Headers
from sandbox.network.http.http1_rules import readings
from sandbox.network.secrets.held_secret import endpoint_only, no_value
from sandbox.network.secrets.injection import put_in
from sandbox.network.secrets.sources import unusable

if TYPE_CHECKING:
    from typing import Protocol

    from sandbox.network.credentials.login import Login
    from sandbox.network.credentials.token import CredentialToken
    from sandbox.network.http.body import Body
    from sandbox.network.http.message import Request, Response
    from sandbox.network.secrets.field_paths import Keys
    from sandbox.network.secrets.store import Secrets

    class Upstreams(Protocol):
        """What is used of `intercept.upstreams.Upstreams`."""

        async def send(self, request: Request) -> Response: ...

        def close(self) -> None: ...


PATIENCE = 60.0  # seconds for an exchange, and to wait for another sandbox's
POLL = 0.05
MOST_EXCHANGES = 1000  # of one sandbox: all its traffic is searched for every token it was ever given
MOST_AT_ONCE = 16  # of one entry: they outlive the connections that began them, and hold a body and a descriptor each
KINDS = {"access_token": "access", "refresh_token": "refresh", "id_token": "id"}
_SPELLED = {**KINDS, "accessToken": "access", "refreshToken": "refresh", "idToken": "id"}
# Header fields of an answer that tenants see. Others could contain a session.
_FIELDS = (
    "content-type", "date", "cache-control", "pragma", "expires", "retry-after", "vary", "www-authenticate", "server",
    "request-id", "x-request-id", "openai-processing-ms", "cf-ray", "x-github-request-id", "x-oauth-scopes",
)  # fmt: skip


class TokenExchange:
    """One request to the token endpoint of `login`, which has connections of its own."""

    def __init__(self, login: Login, secrets: Secrets, upstreams: Upstreams) -> None:
        self._login, self._secrets, self._upstreams = login, secrets, upstreams

    async def handled(self, request: Request) -> Response:
        """The answer, with placeholders. Raises Denied, OSError, BadMessage."""
        if "Upgrade" in request.headers:
            raise Denied(RULE, "a token endpoint has no WebSocket")
        if self._login.running >= MOST_AT_ONCE:
            raise Denied(RULE, "{most} requests for tokens are waiting already", most=MOST_AT_ONCE)
        self._login.running += 1
        try:
            async with asyncio.timeout(PATIENCE):  # a body that never ends would keep its place
                begun = await self._begun(request)
            exchange = self._secrets.unfinished.start(self._exchanged(*begun))
        except BaseException:
            self._login.running -= 1
            raise
        # The tenant may leave now; the exchange is completed all the same.
        return await asyncio.shield(exchange)

    async def _begun(self, request: Request) -> tuple[Request, TokenRequest, CredentialToken | None]:
        """Reads the request and finds out what it asks for."""
        body = await _read(decoded(request.headers, request.stream), MOST_REQUEST)
        asked = TokenRequest(request.headers.media_type, body)
        self._secrets.follow_logins()
        if self._login.exchanges >= MOST_EXCHANGES:
            raise Denied(RULE, "this sandbox has asked for tokens {most} times: start another", most=MOST_EXCHANGES)
        self._login.exchanges += 1
        token = self._refresh_token(request, asked)
        request.inform = None  # informational responses are useless here, and could contain anything
        request.headers.remove("Expect")
        _give(request, asked.written() if token is not None else body)
        return request, asked, token

    def _refresh_token(self, request: Request, asked: TokenRequest) -> CredentialToken | None:
        """The refresh token that the request asks for, if it may have it."""
        exactly = all(  # also where a server takes another header field for the method or the path
            method == "POST" and target in self._login.entry.refresh.paths
            for method, target in readings(request.method, request.target, request.headers.pairs)
        )
        if not (exactly and asked.refresh_token and request.scheme == "https"):
            return None
        if self._login.endpoint.allows(request.host, request.port) is None:
            return None
        word = asked.refresh_token.encode("utf-8", "surrogatepass")
        for one in self._login.tokens():
            if one.endpoint_only and word in one.placeholders and one.hosts.allows(request.host, request.port):
                return one
        return None

    async def _exchanged(self, request: Request, asked: TokenRequest, token: CredentialToken | None) -> Response:
        lock: FileLock | None = None
        try:
            if token is not None or self._logs_in(request, asked):
                lock = await self._locked()
            async with asyncio.timeout(PATIENCE):
                sent = await self._prepared(request, asked, token)
                response = await self._upstreams.send(request)
                answer = await _read(decoded(response.headers, response.stream), MOST)
            return self._taken(request, response, answer, asked, sent)
        finally:
            self._login.running -= 1
            self._upstreams.close()
            if lock is not None:
                lock.close()

    def _logs_in(self, request: Request, asked: TokenRequest) -> bool:
        return asked.grant in LOGIN_GRANTS or same_path(request.target, self._login.entry.refresh.logins)

    async def _locked(self) -> FileLock:
        """Waits for other sandboxes that renew the same tokens."""
        try:
            lock = FileLock(self._login.source() or self._login.store)
        except OSError as problem:
            raise Denied(RULE, "tokens cannot be renewed: {reason}", reason=problem.strerror) from None
        for _ in range(round(PATIENCE / POLL)):
            if lock.tried():
                return lock
            await asyncio.sleep(POLL)
        lock.close()
        raise Denied(RULE, "another sandbox has been renewing these tokens for {seconds:.0f} s", seconds=PATIENCE)

    async def _prepared(self, request: Request, asked: TokenRequest, token: CredentialToken | None) -> str | None:
        """Inserts values. Returns the refresh token that is sent, if any."""
        self._login.load()  # under the lock: it may have been renewed while we waited
        given = asked.refresh_token.encode() if token is not None else None
        await put_in(self._secrets, request, given)
        if token is None or given is None:
            return None
        if token.value is None:
            raise no_value(token.name, token.setting, token.why)
        body = await _read(request.stream, MOST_REQUEST)
        filled = asked.with_value(body, given, token.value)
        if filled is None:
            raise endpoint_only(token.name, token.setting)
        _give(request, filled)
        request.uses.put_in(token.name)
        return token.value.decode()

    # -- the answer

    def _taken(
        self, request: Request, response: Response, answer: bytes, asked: TokenRequest, sent: str | None
    ) -> Response:
        """Stores the tokens and returns the answer for the tenant."""
        if 300 <= response.status < 400:
            raise Denied(RULE, "the token endpoint redirects, and the address may hold a token")
        kind = response.headers.media_type
        said = top_level(answer, kind) if 200 <= response.status < 300 else {}
        login_inside = sent is None and self._logs_in(request, asked)
        new = self._fitting(said) if sent is not None or login_inside else {}
        if new:
            self._keep(sent, new, said)

        def stand_in(keys: Keys, value: str) -> str:
            field = _SPELLED.get(keys[0]) if len(keys) == 1 else None
            token = self._login.of_kind(field) if field in new and field is not None else None
            if token is not None and new.get(field or "") == value and token.placeholders:
                request.uses.taken_out(token.name)
                return token.placeholder.decode()
            request.uses.taken_out("credentials")
            return self._extra(value, request.host, keep=login_inside)

        body = rewritten(answer, kind, response.status, self._login.entry.refresh.keep, stand_in)
        self._secrets.follow_logins()
        response.headers = Headers([pair for pair in response.headers.pairs if pair[0].lower().decode() in _FIELDS])
        response.stream = Whole(body) if body else EMPTY
        if body or response.status not in (204, 304):
            response.headers.set("Content-Length", str(len(body)))
        return response

    def _fitting(self, said: dict[str, Any]) -> dict[str, str]:
        """The tokens of an answer that belong to fields of the file, by kind. Empty when one of them is unusable: the
        person's own tokens stay."""
        found = {kind: said[name] for name, kind in KINDS.items() if isinstance(said.get(name), str)}
        if "access" not in found or self._login.of_kind("access") is None:
            return {}
        if any(unusable(value) or self._holds_placeholder(value) for value in found.values()):
            return {}
        return {kind: value for kind, value in found.items() if self._login.of_kind(kind) is not None}

    def _holds_placeholder(self, value: str) -> bool:
        """Whether what should be a token is or contains one of our placeholders."""
        known = [one for token in self._login.tokens() for one in token.placeholders]
        return any(one in value.encode() for one in known)

    def _keep(self, sent: str | None, new: dict[str, str], said: dict[str, Any]) -> None:
        """Writes them to the file. They are in memory in any case, and good for this sandbox."""
        try:
            self._login.renewed(sent, new, said)
        except (OSError, UnreadableCredentials, ValueError) as problem:
            self._login.only_in_memory(new)
            self._secrets.complain(self._login.path, type(problem).__name__)

    def _extra(self, value: str, host: str, *, keep: bool) -> str:
        placeholder = self._login.extra(value, host)
        if keep:
            try:
                hosts = [one.text for one in self._login.more(placeholder).hosts.patterns]
                keep_more(self._login.kept_as, placeholder, value, hosts)
            except OSError:
                self._secrets.complain(self._login.path, "OSError")
        return placeholder


async def _read(body: Body, most: int) -> bytes:
    """All of `body`. Raises Denied when it is larger than `most`."""
    data = bytearray()
    while piece := await body.read():
        data += piece
        if len(data) > most:
            body.close()
            raise Denied(RULE, "a message to or from a token endpoint is larger than {most} bytes", most=most)
    return bytes(data)


def _give(request: Request, body: bytes) -> None:
    """Gives `request` a new body, with a matching length."""
    request.headers.remove("Content-Encoding")
    request.headers.remove("Transfer-Encoding")
    request.stream = Whole(body) if body else EMPTY
    if body or "Content-Length" in request.headers:
        request.headers.set("Content-Length", str(len(body)))
