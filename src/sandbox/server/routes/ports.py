"""Ports inside by URL: `/v1/sandboxes/ID/port/8080/…` is what a program inside serves on 8080, HTTP and WebSocket.

The program inside is hostile. It never sees the caller's token. Its answers are marked so that no browser runs them as
pages of this server. h11, the parser we use everywhere, bounds its headers and body.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any
from urllib.parse import urljoin, urlsplit, urlunsplit

import h11
from litestar import HttpMethod, Request, WebSocket, route, websocket
from litestar.exceptions import WebSocketDisconnect
from litestar.params import Parameter
from litestar.response import Stream
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Message, Ping, TextMessage
from wsproto.events import Request as Handshake
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from sandbox.network.http.http1_upstream import MOST_INTERIM
from sandbox.network.stream import Turns
from sandbox.server.e2b.credentials import ONCE, SURFACE
from sandbox.server.e2b.endings import wake
from sandbox.server.reach import Reached
from sandbox.server.refusal import Refusal
from sandbox.server.server import Server
from sandbox.server.tickets import PROTOCOL

PIECE = 2**16
PATIENCE = 60.0  # seconds in which the request must be sent and the program inside must begin to answer
METHODS = [HttpMethod.GET, HttpMethod.HEAD, HttpMethod.POST, HttpMethod.PUT, HttpMethod.PATCH, HttpMethod.DELETE]

# Headers of one connection, not of the message (RFC 9110, 7.6.1); then those that would tell the tenant who calls.
_HOPS = {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding"}
_NOT_INWARDS = {
    *_HOPS, "upgrade", "host", "authorization", "cookie", "content-length", "expect", "origin", "referer",
    "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-real-ip",
    *(name.decode() for name in ONCE),
}  # fmt: skip
_NOT_OUTWARDS = {
    *_HOPS, "upgrade", "set-cookie", "set-cookie2", "clear-site-data", "strict-transport-security", "alt-svc", "nel",
    "report-to", "reporting-endpoints", "refresh", "www-authenticate", "service-worker-allowed", "x-frame-options",
    "cross-origin-opener-policy", "cross-origin-embedder-policy", "cross-origin-resource-policy", "referrer-policy",
    "origin-agent-cluster", "permissions-policy",
}  # fmt: skip
# A proxy in front of this server obeys these: it would serve its own files (nginx's X-Accel-Redirect), or keep the
# answer and give it to somebody without a token.
_FOR_PROXIES = re.compile(
    r"x-(?:accel|sendfile|lighttpd|litespeed|reproxy)(?:-.*)?|(?:.*-)?cache-control|(?:surrogate|edge|cdn)-.*"
    r"|expires|pragma|age"
)
# All that a browser gets: what describes the body. Browsers learn new fields that act on a whole origin every year.
_FOR_BROWSERS = {
    "content-type", "content-length", "content-encoding", "content-language", "content-disposition", "content-range",
    "accept-ranges", "etag", "last-modified", "date", "location",
}  # fmt: skip
_SAFE = {"content-security-policy": "sandbox", "x-content-type-options": "nosniff"}

_ITSELF = ("localhost", "127.0.0.1", "::1")  # the host names that the program may use for itself
_PLAIN = re.compile(r"[!-\[\]-~]*")  # no space, control character or backslash, which clients read differently
_DOTS = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)

Number = Annotated[int, Parameter(ge=1, le=65535)]


@route(
    ["/v1/sandboxes/{id:str}/port/{port:int}", "/v1/sandboxes/{id:str}/port/{port:int}/{rest:path}"],
    http_method=METHODS,
    opt={"verb": "exec", "surface": SURFACE},
    request_max_body_size=None,
    include_in_schema=False,
)
async def port(request: Request[Any, Any, Any], server: Server, reached: Reached, port: Number) -> Stream:
    """Forwards the request to the program at that port. 502 when nothing listens there."""
    if reached.paused:
        await wake(server, reached)
    line = await _dial(server, reached, port)
    try:
        wire, head = await asyncio.wait_for(_asked(request, server, line), PATIENCE)
    except TimeoutError:
        line.close()
        raise Refusal(504, "port", f"port {port} has not answered within {PATIENCE:g} s") from None
    except (OSError, h11.ProtocolError) as problem:
        line.close()
        raise Refusal(502, "port", f"port {port} does not speak HTTP: {type(problem).__name__}") from None
    except BaseException:
        line.close()
        raise
    headers = _passed_on(request, head)
    if (led := _led(request, headers.pop("location", None), port)) is not None:
        headers["location"] = led
    return Stream(_body(wire, line), status_code=head.status_code, headers={**headers, **_SAFE})


def _passed_on(request: Request[Any, Any, Any], head: h11.Response) -> dict[str, str]:
    """The fields of the program's answer that the caller gets: to a browser, those that it cannot act on."""
    headers: dict[str, str] = {}
    for name, value in ((one.decode("latin-1"), text.decode("latin-1")) for one, text in head.headers):
        if name not in _NOT_OUTWARDS and not name.startswith("access-control-") and not _FOR_PROXIES.fullmatch(name):
            headers[name] = f"{headers[name]}, {value}" if name in headers else value  # RFC 9110, 5.2
    if not any(name.lower().startswith("sec-fetch-") for name in request.headers):
        return headers
    return {name: value for name, value in headers.items() if name in _FOR_BROWSERS}


def _led(request: Request[Any, Any, Any], location: str | None, port: int) -> str | None:
    """The program's redirect to one of its own paths, as a path of this server; None for any other redirect.

    Clients follow a redirect with their token. A redirect to another path of this server would make them do there what
    the program chose; one to another port of this machine would make some show the token to whatever listens there.
    """
    if location is None or not _PLAIN.fullmatch(location):
        return None
    try:
        parts = urlsplit(urljoin(f"http://localhost{_target(request)}", location))
        own = (
            parts.scheme == "http"
            and parts.hostname in _ITSELF
            and parts.port in (None, port)
            and "@" not in parts.netloc
        )
    except ValueError:
        return None
    if not own or _DOTS.search(parts.path):
        return None
    raw = request.scope.get("raw_path", b"").decode("latin-1").split("?")[0]
    return urlunsplit(("", "", "/".join(raw.split("/", 6)[:6]) + (parts.path or "/"), parts.query, parts.fragment))


class _Line:
    """A connection into the sandbox, used in the event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self) -> bytes:
        return await self._reader.read(PIECE)

    def close(self) -> None:
        self._writer.close()


async def _dial(server: Server, reached: Reached, port: int) -> _Line:
    connected = await server.run(lambda: reached.sandbox.dial(port), lambda line: line.close())
    connected.setblocking(False)
    return _Line(*await asyncio.open_connection(sock=connected))


async def _asked(request: Request[Any, Any, Any], server: Server, line: _Line) -> tuple[h11.Connection, h11.Response]:
    """Sends the request and waits for the head of the answer. Raises OSError, h11.ProtocolError, Refusal."""
    wire = h11.Connection(h11.CLIENT)
    length = request.headers.get("content-length")
    headers = [(name, value) for name, value in request.headers.multi_items() if name.lower() not in _NOT_INWARDS]
    headers += [("host", "localhost"), ("connection", "close")]
    has_body = length is not None or "transfer-encoding" in request.headers
    if has_body:
        headers.append(("content-length", length) if length is not None else ("transfer-encoding", "chunked"))
    await line.send(wire.send(h11.Request(method=request.method, target=_target(request), headers=headers)) or b"")
    if has_body:
        sent = 0
        async for piece in request.stream():
            sent += len(piece)
            if sent > server.settings.upload_limit:
                raise Refusal(413, "too_large", f"a body has at most {server.settings.upload_limit} bytes")
            if piece:
                await line.send(wire.send(h11.Data(data=piece)) or b"")
    await line.send(wire.send(h11.EndOfMessage()) or b"")
    for _ in range(MOST_INTERIM):
        event = await _event(wire, line)
        if isinstance(event, h11.Response):
            return wire, event
        if not isinstance(event, h11.InformationalResponse):
            break
    raise h11.RemoteProtocolError("no answer")


def _target(request: Request[Any, Any, Any] | WebSocket[Any, Any, Any]) -> str:
    """The path below the port, still encoded as it was sent."""
    raw = request.scope.get("raw_path", b"").decode("latin-1").split("?")[0]
    parts = raw.split("/", 6)  # "", v1, sandboxes, ID, port, N, rest
    query = request.scope.get("query_string", b"").decode("latin-1")
    return f"/{parts[6] if len(parts) > 6 else ''}" + (f"?{query}" if query else "")


async def _event(wire: h11.Connection, line: _Line) -> Any:
    while (event := wire.next_event()) is h11.NEED_DATA:
        wire.receive_data(await line.receive())
    return event


async def _body(wire: h11.Connection, line: _Line) -> AsyncIterator[bytes]:
    turns = Turns()
    try:
        while isinstance(event := await _event(wire, line), h11.Data):
            yield bytes(event.data)
            await turns.end()  # the program may send a million chunks of one byte
    finally:
        line.close()


# -- WebSockets


@websocket(
    ["/v1/sandboxes/{id:str}/port/{port:int}", "/v1/sandboxes/{id:str}/port/{port:int}/{rest:path}"],
    opt={"verb": "exec", "surface": SURFACE},
)
async def port_socket(socket: WebSocket[Any, Any, Any], server: Server, reached: Reached, port: Number) -> None:
    """A WebSocket to the program at that port."""
    line = await _dial(server, reached, port)
    wire = WSConnection(ConnectionType.CLIENT)
    offered: list[str] = list(socket.scope.get("subprotocols") or [])
    theirs = [one for one in offered if not one.startswith(PROTOCOL)]  # a browser's ticket is for us alone
    try:
        await line.send(wire.send(Handshake(host="localhost", target=_target(socket), subprotocols=theirs)))
        chosen, *early = await asyncio.wait_for(_accepted(wire, line), PATIENCE)
        await socket.accept(subprotocols=chosen.subprotocol)
        await _both_ways(socket, wire, line, early)
    finally:
        line.close()


async def _accepted(wire: WSConnection, line: _Line) -> list[Any]:
    """Waits for the acceptance. Returns it, and the events that came with it. Raises Refusal."""
    while True:
        data = await line.receive()
        try:
            wire.receive_data(data or None)
        except RemoteProtocolError:
            raise Refusal(502, "port", "the port did not accept a WebSocket") from None
        events = list(wire.events())
        if events and isinstance(events[0], AcceptConnection):
            return events
        if events or not data:
            raise Refusal(502, "port", "the port did not accept a WebSocket")


async def _both_ways(socket: WebSocket[Any, Any, Any], wire: WSConnection, line: _Line, early: list[Any]) -> None:
    tasks = [
        asyncio.ensure_future(_inwards(socket, wire, line)),
        asyncio.ensure_future(_outwards(socket, wire, line, early)),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _inwards(socket: WebSocket[Any, Any, Any], wire: WSConnection, line: _Line) -> None:
    while True:
        message: Any = await socket.receive()
        if message["type"] == "websocket.disconnect":
            await line.send(wire.send(CloseConnection(code=1000)))
            return
        data = message.get("bytes")
        event = BytesMessage(data=data) if data is not None else TextMessage(data=message.get("text") or "")
        await line.send(wire.send(event))


async def _outwards(socket: WebSocket[Any, Any, Any], wire: WSConnection, line: _Line, early: list[Any]) -> None:
    events, turns = early, Turns()
    while True:
        for event in events:
            await turns.end()
            if isinstance(event, Message):
                # Frames are passed on as they arrive, so that no program inside makes us hold a huge message.
                mode = "text" if isinstance(event, TextMessage) else "binary"
                await socket.send_data(event.data if mode == "text" else bytes(event.data), mode=mode)  # type: ignore
            elif isinstance(event, Ping):
                await line.send(wire.send(event.response()))
            elif isinstance(event, CloseConnection):
                await _close(socket, event.code)
                return
        data = await line.receive()
        try:
            wire.receive_data(data or None)
            events = list(wire.events())
        except (RemoteProtocolError, LocalProtocolError):
            await _close(socket, 1002)
            return
        if not data and not events:
            await _close(socket, 1006)
            return


async def _close(socket: WebSocket[Any, Any, Any], code: int | None) -> None:
    try:
        await socket.close(code=code if code is not None and (code in (1001, 1002, 1003) or code >= 3000) else 1000)
    except (WebSocketDisconnect, RuntimeError):
        pass


ROUTES = [port, port_socket]
