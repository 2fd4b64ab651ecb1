"""Refusing a connection over HTTP: inside TLS with a certificate of the sandbox's authority, and over HTTP/2.

After a failed look-up, a reset or a TLS alert, clients retry for a minute or more and never show the reason. A 403 ends
this at once, and clients print it.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from sandbox.network.http.body import EMPTY
from sandbox.network.http.http1_tenant import Http1Tenant
from sandbox.network.http.http2_tenant import Http2Tenant
from sandbox.network.intercept.upstreams import HTTP1, HTTP2
from sandbox.network.stream import Stream
from sandbox.network.tls.tls_stream import TlsStream
from sandbox.policy.hosts import InvalidHost, canonical_host

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from sandbox.network.http.message import Request, Response
    from sandbox.network.stream import ByteStream
    from sandbox.network.tls.ca import Authority
    from sandbox.network.tls.client_hello import ClientHello

_PATIENCE = 30.0  # seconds for a handshake and a request: an emulated client may take more than ten


def speaks_http(hello: ClientHello) -> bool:
    """Whether a client may want HTTP: it offers HTTP, or no protocol at all."""
    return not hello.protocols or HTTP1 in hello.protocols or HTTP2 in hello.protocols


async def answer_tls(
    client: socket.socket, hello: ClientHello, host: str, authority: Authority, answer: Callable[[], Response]
) -> None:
    """Completes the handshake in the name of the host the tenant wanted, and answers its request. Raises OSError when
    the tenant breaks off."""
    # HTTP/1.1 has a line for the reason, which many clients print; HTTP/2 has none.
    protocol = HTTP2 if HTTP2 in hello.protocols and HTTP1 not in hello.protocols else HTTP1
    stream = await Stream.of(client)
    try:
        async with asyncio.timeout(_PATIENCE):
            tls = TlsStream(stream, authority.context(_name(hello.server_name, host), protocol), server_side=True)
            await tls.handshake()
            await _answer(tls, protocol, "https", host, answer)
    except (TimeoutError, ssl.SSLError):
        pass  # the tenant does not trust the authority, or sends no request
    finally:
        stream.close()


async def answer_http2(client: socket.socket, host: str, answer: Callable[[], Response]) -> None:
    """Answers HTTP/2 without TLS."""
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
    """The name for the certificate: the one the tenant asked for, even if that differs from the destination."""
    try:
        return canonical_host(server_name) if server_name is not None else host
    except InvalidHost:
        return host
