"""Explicit proxy requests (HTTP CONNECT, absolute URLs, SOCKS5): just another way to name a destination.

Programs in a Linux sandbox do not need it. It is for Seatbelt, which has no network namespace, and for programs that
require a proxy. Each request is read exactly to its end, so that what follows is still unread when the connection is
handed on.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
from base64 import b64encode
from typing import TYPE_CHECKING, Protocol

from sandbox.errors import Denied
from sandbox.network.gate.first_bytes import exactly, peek
from sandbox.network.gate.refusal import ClientStyle, HttpProxyStyle, farewell, request_line
from sandbox.network.http.denied_response import plain_bytes, proxy_error
from sandbox.network.http.http1_rules import MAX_HEAD, refuse_odd_target
from sandbox.network.http.message import BadMessage
from sandbox.policy.decision import Decision
from sandbox.policy.hosts import InvalidHost, canonical_host

if TYPE_CHECKING:
    from sandbox.network.destination import Destination
    from sandbox.network.gate.refusal import Ca

    class ProxyGate(Protocol):
        """What a proxy needs of the gate."""

        def destination(self, host: str, port: int, named_by: str) -> Destination: ...

        def refuse_placeholders(self, head: bytes, destination: Destination) -> None: ...

        async def deny(
            self, client: socket.socket, destination: Destination, decision: Decision, style: ClientStyle
        ) -> None: ...

        async def connect(
            self, client: socket.socket, destination: Destination, style: ClientStyle | None = None
        ) -> None: ...


_HANDSHAKE = 30.0
_SUCCEEDED, _NOT_ALLOWED, _UNREACHABLE, _UNSUPPORTED, _BAD_ADDRESS = 0, 2, 4, 7, 8
_HOP_BY_HOP = ("connection", "keep-alive", "proxy-connection", "proxy-authorization", "host", "te", "upgrade")


class BadRequest(Exception):
    """The request does not name a destination."""


async def serve(client: socket.socket, gate: ProxyGate, token: str | None = None) -> None:
    """Serves one client. With `token`, the client must present it: other users of the machine may reach the port."""
    head = b""
    try:
        async with asyncio.timeout(_HANDSHAKE):
            first = await peek(client)
            if first[:1] == b"\x05":
                host, port = await _socks_request(client, token)
                style: ClientStyle = _Socks()
            else:
                head = await _head(client)
                style, host, port = _http_request(head, token)
                if isinstance(style, _Connect):
                    client.recv(len(head))
    except TimeoutError:
        return
    except (BadRequest, InvalidHost) as problem:
        return await farewell(client, plain_bytes(proxy_error(400, f"The sandbox's proxy: {problem}\n")))
    except _Unauthorized:
        answer = proxy_error(407, "This proxy belongs to a sandbox.\n")
        answer.headers.add("Proxy-Authenticate", 'Basic realm="sandbox"')
        return await farewell(client, plain_bytes(answer))
    except _SocksError as problem:
        return await farewell(client, problem.last)
    destination = gate.destination(host, port, "connect")
    try:
        # A CONNECT's headers go no further, but a placeholder in them was meant to.
        gate.refuse_placeholders(head, destination)
    except Denied as denied:
        return await gate.deny(client, destination, Decision(False, denied.rule, denied.reason), style)
    await gate.connect(client, destination, style)


# -- HTTP -------------------------------------------------------------------------------------------------------


class _Unauthorized(Exception):
    pass


class _Connect(HttpProxyStyle):
    """CONNECT: answered once, then a plain connection."""

    async def welcome(self, client: socket.socket, upstream: socket.socket | None) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, b"HTTP/1.1 200 Connection established\r\n\r\n")


class _Absolute(ClientStyle):
    """`GET http://host/path`: passed on as one request in origin form, on a connection that ends with it."""

    def __init__(self, head: bytes, rewritten: bytes) -> None:
        self._head = head
        self._rewritten = rewritten

    async def first_request(self, client: socket.socket) -> tuple[str, str]:
        return request_line(self._head)

    async def welcome(self, client: socket.socket, upstream: socket.socket | None) -> None:
        if upstream is not None:  # the interceptor reads the request itself
            client.recv(len(self._head))
            await asyncio.get_running_loop().sock_sendall(upstream, self._rewritten)


async def _head(client: socket.socket) -> bytes:
    """A request's head, left unread."""
    seen = b""
    while True:
        data = await peek(client, len(seen) + 1, MAX_HEAD)
        end = data.find(b"\r\n\r\n")
        if end >= 0:
            return data[: end + 4]
        if len(data) <= len(seen) or len(data) >= MAX_HEAD:
            raise BadRequest("not a complete HTTP request head")
        seen = data


def _http_request(head: bytes, token: str | None) -> tuple[ClientStyle, str, int]:
    """The client's style, and the host and port it asks for. Raises BadRequest, InvalidHost or _Unauthorized."""
    try:
        line, *fields = head[:-4].decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        raise BadRequest("the request head is not ASCII") from None
    words = line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[0].isalpha():
        raise BadRequest("not an HTTP/1 request line")
    headers = [_field(field) for field in fields]
    _authorize(headers, token)
    if words[0] == "CONNECT":
        return _Connect(), *_authority(words[1], None)
    try:
        refuse_odd_target(words[1])
    except BadMessage as problem:
        raise BadRequest(str(problem)) from None
    scheme, found, rest = words[1].partition("://")
    if scheme.lower() != "http" or not found:
        raise BadRequest("write CONNECT host:port, or an absolute http:// URL")
    authority = rest.partition("?")[0].partition("/")[0]
    host, port = _authority(authority, 80)
    path = rest[len(authority) :]
    if not path.startswith("/"):
        path = "/" + path
    return _Absolute(head, _origin_form(words[0], path, authority, headers)), host, port


def _field(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name or name != name.strip() or any(ord(letter) < 32 and letter != "\t" for letter in text):
        raise BadRequest("a malformed header field")
    return name, value.strip()


def _authority(text: str, default: int | None) -> tuple[str, int]:
    if "@" in text:
        raise BadRequest("a destination with credentials in it")
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, "" if default is None else str(default)
    if not (port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise BadRequest("a destination without a port")
    return canonical_host(host), int(port)


def _origin_form(method: str, path: str, authority: str, headers: list[tuple[str, str]]) -> bytes:
    hosts = [value for name, value in headers if name.lower() == "host"]
    if len(hosts) > 1 or (hosts and hosts[0].lower() != authority.lower()):
        raise BadRequest("Host differs from the request's target")
    kept = [f"{name}: {value}" for name, value in headers if name.lower() not in _HOP_BY_HOP]
    lines = [f"{method} {path} HTTP/1.1", f"Host: {authority}", *kept, "Connection: close", "", ""]
    return "\r\n".join(lines).encode("ascii")


def _authorize(headers: list[tuple[str, str]], token: str | None) -> None:
    if token is None:
        return
    wanted = "Basic " + b64encode(f"sandbox:{token}".encode()).decode()
    given = next((value for name, value in headers if name.lower() == "proxy-authorization"), "")
    if not hmac.compare_digest(given.encode(), wanted.encode()):
        raise _Unauthorized


# -- SOCKS5 -----------------------------------------------------------------------------------------------------


class _SocksError(Exception):
    def __init__(self, last: bytes) -> None:
        self.last = last


class _Socks(ClientStyle):
    async def first_request(self, client: socket.socket) -> tuple[str, str]:
        return "", ""  # it sends none before it is answered

    async def welcome(self, client: socket.socket, upstream: socket.socket | None) -> None:
        await asyncio.get_running_loop().sock_sendall(client, _reply(_SUCCEEDED))

    async def deny(self, client: socket.socket, destination: Destination, decision: Decision, ca: Ca) -> None:
        await farewell(client, _reply(_NOT_ALLOWED))

    async def fail(self, client: socket.socket, destination: Destination, problem: str, ca: Ca) -> None:
        await farewell(client, _reply(_UNREACHABLE))


def _reply(code: int) -> bytes:
    return bytes((5, code, 0, 1, 0, 0, 0, 0, 0, 0))


async def _socks_request(client: socket.socket, token: str | None) -> tuple[str, int]:
    """Greeting, authentication, request. Raises _SocksError with the final reply to the client."""
    loop = asyncio.get_running_loop()
    _, count = await exactly(client, 2)
    method = 0 if token is None else 2
    if method not in await exactly(client, count):
        raise _SocksError(b"\x05\xff")
    await loop.sock_sendall(client, bytes((5, method)))
    if token is not None:
        await _socks_login(client, token)
    version, command, _, kind = await exactly(client, 4)
    if version != 5 or command != 1:
        raise _SocksError(_reply(_UNSUPPORTED))
    if kind == 3:
        (length,) = await exactly(client, 1)
        raw = await exactly(client, length)
    elif kind in (1, 4):
        raw = await exactly(client, 4 if kind == 1 else 16)
    else:
        raise _SocksError(_reply(_BAD_ADDRESS))
    port = int.from_bytes(await exactly(client, 2), "big")
    try:
        # Decoded strictly: a name with a NUL must not be judged whole and then dialled only up to the NUL.
        name = raw.decode("ascii") if kind == 3 else socket.inet_ntop(_FAMILIES[kind], raw)
        return canonical_host(name), port
    except ValueError:
        raise _SocksError(_reply(_NOT_ALLOWED)) from None


_FAMILIES = {1: socket.AF_INET, 4: socket.AF_INET6}


async def _socks_login(client: socket.socket, token: str) -> None:
    _, length = await exactly(client, 2)
    await exactly(client, length)
    (length,) = await exactly(client, 1)
    right = hmac.compare_digest(await exactly(client, length), token.encode())
    if not right:
        raise _SocksError(b"\x01\x01")
    await asyncio.get_running_loop().sock_sendall(client, b"\x01\x00")
