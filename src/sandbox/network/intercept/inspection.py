"""One intercepted connection, from the tenant's first byte to its end.

Separate from `interception.py`, which a sandbox with secrets loads at its start: this is loaded when a tenant connects.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from sandbox.errors import Denied, Message
from sandbox.network.destination import Destination
from sandbox.network.http.denied_response import denied
from sandbox.network.http.http1_tenant import Http1Tenant
from sandbox.network.http.http2_tenant import Http2Tenant
from sandbox.network.intercept.exchange import Exchange
from sandbox.network.intercept.upstreams import HANDSHAKE_TIMEOUT, HTTP1, HTTP2, Trust, Upstreams
from sandbox.network.stream import Stream
from sandbox.network.tls.client_hello import read_client_hello
from sandbox.network.tls.tls_stream import TlsStream

if TYPE_CHECKING:
    import socket

    from sandbox.network.destination import GateContext
    from sandbox.network.http.message import Request, Response
    from sandbox.network.intercept.exchange import Parts
    from sandbox.network.stream import ByteStream

LEAVE = 5.0
UNTRUSTED = Message("it may not trust the sandbox's certificate authority")
PREFACE = b"PRI * HTTP/2.0\r\n"


class Inspection:
    """Serves intercepted connections. `parts` may change between requests."""

    def __init__(self, parts: Parts, ca_certificates: list[str]) -> None:
        self._parts = parts
        self._trust = Trust(ca_certificates)
        self._trust.warm()

    async def tls(self, client: socket.socket, peeked: bytes, destination: Destination, context: GateContext) -> None:
        """Terminates TLS. Connects to upstream first, so that the tenant is offered the protocol upstream chose."""
        stream = await Stream.of(client)
        upstreams = Upstreams(context, self._trust, self._parts.hooks)
        try:
            hello = read_client_hello(peeked)
            offered = hello.protocols if hello is not None else ()
            offer = tuple(one for one in offered if one in (HTTP1, HTTP2)) or (HTTP1,)
            protocol = upstreams.later(offer) if context.asks_first else await upstreams.agree(destination, offer)
            tls = TlsStream(stream, self._parts.authority.context(destination.host, protocol), server_side=True)
            await _handshake(tls)
            _end_with(stream, upstreams)
            await self._serve(tls, protocol, "https", destination, context, upstreams)
        except ssl.SSLError as problem:
            raise Denied(
                "tls", "the TLS handshake failed ({problem}); {hint}", problem=problem.reason or problem, hint=UNTRUSTED
            ) from None
        finally:
            upstreams.close()
            stream.close()

    async def http(self, client: socket.socket, peeked: bytes, destination: Destination, context: GateContext) -> None:
        """Serves plain HTTP, on any port; HTTP/2 when the tenant begins with its preface."""
        stream = await Stream.of(client)
        upstreams = Upstreams(context, self._trust, self._parts.hooks)
        try:
            protocol = HTTP2 if peeked.startswith(PREFACE) else HTTP1
            upstreams.plain(protocol)
            _end_with(stream, upstreams)
            await self._serve(stream, protocol, "http", destination, context, upstreams)
        finally:
            upstreams.close()
            stream.close()

    async def fetch(self, request: Request, context: GateContext) -> Response:
        """Sends a request on behalf of a tenant, subject to the same rules, hooks and secrets as the tenant's own."""
        destination = Destination(request.host, request.port, "connect")
        decision = context.judge(destination)
        if not decision:
            context.report(destination, method=request.method, url=request.url, decision=decision, status=403)
            return denied(f"{request.method} {request.scheme}://{request.authority}", decision)
        upstreams = Upstreams(context, self._trust, self._parts.hooks)
        try:
            if request.scheme == "https":
                await upstreams.agree(destination, (HTTP1,))
            else:
                upstreams.plain(HTTP1)
            answer = await Exchange(destination, context, self._parts, upstreams)(request)
            await answer.read()
            return answer
        finally:
            upstreams.close()

    async def _serve(
        self,
        stream: ByteStream,
        protocol: str,
        scheme: str,
        destination: Destination,
        context: GateContext,
        upstreams: Upstreams,
    ) -> None:
        handle = Exchange(destination, context, self._parts, upstreams)
        speak = Http2Tenant if protocol == HTTP2 else Http1Tenant
        try:
            tenant = speak(stream, scheme, destination.host, destination.port, handle)
            upstreams.when_gone = tenant.upstream_gone
            await tenant.serve()
        except TimeoutError:
            pass  # the tenant was too slow; its requests have been reported
        except ConnectionError:
            # The tenant left. Its requests have been reported; if it made none, that is worth reporting.
            if scheme == "https" and not handle.asked:
                raise Denied(
                    "tls", "the tenant ended the connection after the TLS handshake; {hint}", hint=UNTRUSTED
                ) from None
        finally:
            stream.close()


async def _handshake(tls: TlsStream) -> None:
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT):
            await tls.handshake()
    except ConnectionError:  # a reset may have discarded the alert that says why
        raise Denied("tls", "the tenant ended the connection in the TLS handshake; {hint}", hint=UNTRUSTED) from None


def _end_with(tenant: Stream, upstreams: Upstreams) -> None:
    """Closes upstream after the tenant has left, so that upstream does not keep working. The tenant may only have
    closed its own direction (as a pipe into a raw client does), so a response that is on its way gets LEAVE seconds."""
    loop = asyncio.get_running_loop()
    tenant.when_ended = lambda: loop.call_later(LEAVE, upstreams.close)
