"""One connection to the signer's host, over HTTP or TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from sandbox.network.http.http1_tenant import Http1Tenant
from sandbox.network.intercept.upstreams import HTTP1
from sandbox.network.stream import Stream
from sandbox.network.tls.tls_stream import TlsStream

if TYPE_CHECKING:
    import socket

    from sandbox.network.destination import Destination
    from sandbox.network.signing.host import SignerHost
    from sandbox.network.stream import ByteStream
    from sandbox.network.tls.ca import Authority

_HANDSHAKE = 30.0


async def serve(
    client: socket.socket, kind: str, destination: Destination, authority: Callable[[], Authority], host: SignerHost
) -> None:
    """Serves the connection until it ends. `kind` is the protocol of its first bytes: "tls" or "http"."""
    stream = await Stream.of(client)
    speaks: ByteStream = stream
    try:
        if kind == "tls":
            tls = TlsStream(stream, authority().context(destination.host, HTTP1), server_side=True)
            async with asyncio.timeout(_HANDSHAKE):
                await tls.handshake()
            speaks = tls
        scheme = "https" if kind == "tls" else "http"
        await Http1Tenant(speaks, scheme, destination.host, destination.port, host).serve()
    except (TimeoutError, ConnectionError, ssl.SSLError):
        pass  # the client left
    finally:
        speaks.close()
        stream.close()
