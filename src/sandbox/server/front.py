"""The checks that every request passes before any route: the host it names, the page that sent it, its token.

The order matters. A request for another host name (DNS rebinding) or from another origin's page is refused before its
token is looked at, and the token is checked before a byte of the body is read. Nothing here depends on the route.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from sandbox.server.connections import PEER
from sandbox.server.e2b.credentials import ONCE, Credentials, in_their_words
from sandbox.server.e2b.hosts import base_name, route
from sandbox.server.lasting import Lasting
from sandbox.server.limits import Buckets, UnderWay
from sandbox.server.refusal import Refusal
from sandbox.server.scopes import Access
from sandbox.server.tickets import PROTOCOL, Tickets
from sandbox.server.tokens import Tokens

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Receive, Send

ACCESS = "sandbox.access"  # in the scope: whose request this is
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_SECRET_IN_URL = re.compile(rb"(?:^|&)(?:access_)?token=", re.IGNORECASE)
_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
]


class Front:
    """The ASGI application in front of the routes."""

    def __init__(
        self, app: ASGIApp, *, tokens: Tokens, tickets: Tickets, hosts: frozenset[str] | None, buckets: Buckets,
        answered: dict[int, int], e2b: Credentials,
    ) -> None:  # fmt: skip
        """`hosts` are the host names that requests may use; None on a Unix socket, where host names mean nothing.

        `answered` counts answers by status. `e2b` checks the credentials of E2B clients.
        """
        self._app, self._e2b = app, e2b
        self._tokens, self._tickets = tokens, tickets
        self._lasting = Lasting(tokens)
        self._under_way = UnderWay()
        self._hosts = hosts
        self._buckets = buckets
        self._answered = answered

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        send = route(scope, self._counting(send))
        try:
            self._admit(scope)
            access: Access | None = scope[ACCESS]
            if access is not None:
                self._under_way.begin(access.token or access.name)
        except Refusal as refused:
            await _refuse(scope, receive, send, in_their_words(scope, refused))
            return
        sending = _with_headers(send) if scope["type"] == "http" else _refusing(_answering(scope, send))
        if access is None:
            await self._app(scope, receive, sending)
            return
        try:
            if not await self._lasting.run(access, self._app(scope, receive, sending)):
                await _hang_up(scope, send)
        finally:
            self._under_way.end(access.token or access.name)

    def _counting(self, send: Send) -> Send:
        async def sending(message: Any) -> None:
            if message["type"].endswith("http.response.start"):
                self._answered[message["status"]] = self._answered.get(message["status"], 0) + 1
            await send(message)

        return sending

    def _admit(self, scope: Any) -> None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in headers and name in (b"host", b"authorization", b"origin", b"content-length", *ONCE):
                raise Refusal(400, "bad_request", f"the header {name.decode('latin-1')} is there twice")
            headers[name] = value
        if b"transfer-encoding" in headers and b"content-length" in headers:
            # A proxy before us might take the other one for the body's end, and what follows for a request of its own.
            raise Refusal(400, "bad_request", "both Content-Length and Transfer-Encoding are there")
        self._check_host(headers)
        self._check_origin(scope, headers)
        if _SECRET_IN_URL.search(scope.get("query_string", b"")):
            raise Refusal(400, "token_in_url", "a token in a URL ends up in logs; send it as Authorization: Bearer …")
        access = self._who(scope, headers)
        scope[ACCESS] = access
        client = scope.get("client")
        wait = self._buckets.take(
            f"token {access.token or access.name}" if access else f"peer {client[0] if client else '-'}"
        )
        if wait:
            raise Refusal(429, "too_many_requests", "too many requests", {"retry-after": str(max(1, round(wait)))})

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        if self._hosts is None:
            return
        found = _HOST.fullmatch(headers.get(b"host", b"").decode("latin-1"))
        if found is None:
            raise Refusal(400, "bad_request", "the request names no host")
        if base_name(found[1]).lower() not in self._hosts:
            raise Refusal(
                421, "wrong_host", "this server does not answer for that host name; see `sandbox serve --name`"
            )

    @staticmethod
    def _check_origin(scope: Any, headers: dict[bytes, bytes]) -> None:
        """Refuses pages of another origin, even with a valid token: no browser needs that."""
        origin = headers.get(b"origin")
        if origin is not None:
            scheme, _, host = origin.decode("latin-1").partition("://")
            if scheme not in ("http", "https") or host.lower() != headers.get(b"host", b"").decode("latin-1").lower():
                raise Refusal(403, "wrong_origin", "requests from pages of another origin are refused")
            return
        opened = headers.get(b"sec-fetch-mode") == b"navigate" and scope.get("method") == "GET"  # a link was followed
        if headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and not opened:
            raise Refusal(403, "wrong_origin", "requests from pages of another origin are refused")

    def _who(self, scope: Any, headers: dict[bytes, bytes]) -> Access | None:
        given = headers.get(b"authorization")
        kind, _, text = (given or b"").decode("latin-1").partition(" ")
        if kind.lower() != "bearer" and self._e2b.offered(scope, headers):  # E2B uses "Basic" to name a user inside
            access = self._e2b.check(scope, headers)
        elif given is not None:
            access = self._tokens.check(text.strip()) if kind.lower() == "bearer" else None
        else:
            offered = _tickets(scope)
            if not offered:
                return None
            access = self._tickets.redeem(offered[0][len(PROTOCOL) :])
            access = access if access is not None and self._tokens.lasts(access) else None
        if access is None or (access.holder and access.holder != scope.get(PEER)):
            client = scope.get("client")
            self._buckets.penalty(f"wrong {client[0] if client else '-'}")
            raise _unauthorized("that token is not valid")
        return access


def _unauthorized(message: str) -> Refusal:
    return Refusal(401, "unauthorized", message, {"www-authenticate": 'Bearer realm="sandbox"'})


def _with_headers(send: Send) -> Send:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            there = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(one for one in _HEADERS if one[0] not in there)]
        await send(message)

    return sending


def _tickets(scope: Any) -> list[str]:
    return [one for one in scope.get("subprotocols", ()) if one.startswith(PROTOCOL)]


def _answering(scope: Any, send: Send) -> Send:
    """Chooses the ticket as the subprotocol where a route chose none: browsers drop a connection without a choice."""
    offered = _tickets(scope)
    if not offered:
        return send

    async def sending(message: Any) -> None:
        if message["type"] == "websocket.accept" and not message.get("subprotocol"):
            message = {**message, "subprotocol": offered[0]}
        await send(message)

    return sending


def _refusing(send: Send) -> Send:
    """Gives a WebSocket that is closed before it was accepted an HTTP answer that says why, not a bare 403."""
    accepted = False

    async def sending(message: Any) -> None:
        nonlocal accepted
        accepted = accepted or message["type"] == "websocket.accept"
        if message["type"] != "websocket.close" or accepted:
            await send(message)
            return
        status = message.get("code", 4500) - 4000
        refused = Refusal(status if 400 <= status < 600 else 500, "refused", str(message.get("reason") or "refused"))
        await _refuse({"type": "websocket"}, None, send, refused)

    return sending


async def _hang_up(scope: Any, send: Send) -> None:
    """Ends a connection whose token is no longer valid, at whatever point its answer is."""
    message: Any = {"type": "http.response.body", "body": b"", "more_body": False}
    if scope["type"] == "websocket":
        message = {"type": "websocket.close", "code": 4401, "reason": "that token is not valid"}
    try:
        await send(message)
    except Exception:  # noqa: BLE001 - the answer has not begun, or is shorter than announced: uvicorn disconnects
        pass


async def _refuse(scope: Any, receive: Receive | None, send: Send, refused: Refusal) -> None:
    kind = "websocket.http" if scope["type"] == "websocket" else "http"
    body = msgspec.json.encode(refused.body())
    headers = [(name.encode(), value.encode()) for name, value in (refused.headers or {}).items()]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *_HEADERS]
    await send({"type": f"{kind}.response.start", "status": refused.status, "headers": headers})  # type: ignore
    await send({"type": f"{kind}.response.body", "body": body, "more_body": False})  # type: ignore
