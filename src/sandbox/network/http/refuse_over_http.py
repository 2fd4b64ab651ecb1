"""A refused connection's last word, said in HTTP: inside TLS by the sandbox's own authority, over HTTP/2 as well.

A look-up that fails, a reset or a TLS alert makes clients try again, for a minute and more, and then say nothing of the
reason. A 403 ends it at once and is printed.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from sandbox.network.gate.stream import Stream
from sandbox.network.http.http1_tenant import Http1Tenant
from sandbox.network.http.http2_tenant import Http2Tenant
from sandbox.network.http.message import EMPTY
from sandbox.network.http.upstream import HTTP1, HTTP2
from sandbox.network.tls.connection import TlsStream, read_hello
from sandbox.policy.hosts import InvalidHost, canonical_host

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from sandbox.network.gate.stream import ByteStream
    from sandbox.network.http.message import Request, Response
    from sandbox.network.tls.ca import Authority

_PATIENCE = 10.0  # for a handshake and a request to nowhere


def speaks_http(peeked: bytes) -> bool:
    """Whether a ClientHello can be meant for HTTP: it offers it, or does not say."""
    try:
        protocols = read_hello(peeked).protocols
    except ValueError:
        return False
    return not protocols or HTTP1 in protocols or HTTP2 in protocols


async def answer_tls(
    client: socket.socket, peeked: bytes, host: str, authority: Authority, answer: Callable[[], Response]
) -> None:
    """Ends TLS as whoever the tenant wanted, and answers what it asks. Raises OSError when it does not go along."""
    hello = read_hello(peeked)
    # HTTP/1.1 has a line for the reason, which many clients print; HTTP/2 has none.
    protocol = HTTP2 if HTTP2 in hello.protocols and HTTP1 not in hello.protocols else HTTP1
    stream = await Stream.of(client)
    try:
        async with asyncio.timeout(_PATIENCE):
            tls = TlsStream(stream, authority.context(_name(hello.server_name, host), protocol), server_side=True)
            await tls.handshake()
            await _answer(tls, protocol, "https", host, answer)
    except (TimeoutError, ssl.SSLError):
        pass  # it does not trust us, or has nothing to ask
    finally:
        stream.close()


async def answer_http2(client: socket.socket, host: str, answer: Callable[[], Response]) -> None:
    """The same for HTTP/2 without TLS."""
    stream = await Stream.of(client)
    try:
        async with asyncio.timeout(_PATIENCE):
            await _answer(stream, HTTP2, "http", host, answer)
    except TimeoutError:
        pass
    finally:
        stream.close()


async def _answer(stream: ByteStream, protocol: str, scheme: str, host: str, answer: Callable[[], Response]) -> None:
    async def handle(request: Request) -> Response:
        request.stream.close()
        response = answer()
        response.last = True
        if request.method == "HEAD":
            response.stream = EMPTY
        return response

    speak = Http2Tenant if protocol == HTTP2 else Http1Tenant
    try:
        await speak(stream, scheme, host, 0, handle).serve()
    finally:
        stream.close()


def _name(server_name: str | None, host: str) -> str:
    """Whom the leaf is for: whom the tenant says it wants, even when that is another than it connected to."""
    try:
        return canonical_host(server_name) if server_name is not None else host
    except InvalidHost:
        return host
