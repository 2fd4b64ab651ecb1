"""How a tenant is refused: in the protocol that it speaks, or by a reset."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import TYPE_CHECKING

from sandbox.network.gate.first_bytes import first_bytes, readable
from sandbox.network.gate.relay import reset

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.network.destination import Destination
    from sandbox.network.http.message import Response
    from sandbox.network.tls.ca import Authority
    from sandbox.policy.decision import Decision

    Ca = Callable[[], Authority]

# Seconds that a client has to speak first, before it is reset: it may be waiting for the server. Over HTTP none does,
# and one in an emulated machine reads its certificates for seconds before it speaks.
FIRST_WORD = 2.0
FIRST_WORD_OF_HTTP = 30.0
HTTP_PORTS = (80, 443)
FIRST_LINE = 1.0  # seconds to wait for a request to show to the owner: the client may be waiting for the server
_LAST_WORD = 1.0
_TLS_ACCESS_DENIED = bytes((0x15, 3, 1, 0, 2, 2, 49))  # a fatal alert


class ClientStyle:
    """How one kind of client is answered. This one: a client that believes it talks to the destination itself.

    `as_srt`: a refused TLS connection fails, as behind srt's proxy, and other answers use srt's wording.
    """

    as_srt = False

    async def first_request(self, client: socket.socket) -> tuple[str, str]:
        """Method and path of the plain HTTP request that begins the connection; empty when none does."""
        try:
            async with asyncio.timeout(FIRST_LINE):
                peeked, found = await first_bytes(client)
        except (TimeoutError, OSError):
            return "", ""
        return request_line(peeked) if found.kind == "http" else ("", "")

    async def welcome(self, client: socket.socket, upstream: socket.socket | None) -> None:
        """The client is connected: to `upstream`, or to the interceptor when that is None."""

    async def deny(self, client: socket.socket, destination: Destination, decision: Decision, ca: Ca) -> None:
        """The client may not connect."""
        answer = partial(_denied, destination, decision, self.as_srt)
        await refuse(client, destination, ca, answer, inside_tls=not self.as_srt)

    async def fail(self, client: socket.socket, destination: Destination, problem: str, ca: Ca) -> None:
        """The client may connect, but the destination cannot be reached."""
        await refuse(client, destination, ca, partial(_failed, destination, problem), inside_tls=not self.as_srt)


def request_line(data: bytes) -> tuple[str, str]:
    """Method and path, without the query (which may hold a secret), of a request head."""
    words = data.partition(b"\n")[0].decode("latin-1").split(" ")
    target = words[1].partition("?")[0] if len(words) > 2 else ""
    _, scheme, rest = target.partition("://")
    return words[0], (f"/{rest.partition('/')[2]}" if scheme else target)


class HttpProxyStyle(ClientStyle):
    """A client that asked a proxy over plain HTTP."""

    async def first_request(self, client: socket.socket) -> tuple[str, str]:
        return "", ""  # it sends none before it is answered

    async def deny(self, client: socket.socket, destination: Destination, decision: Decision, ca: Ca) -> None:
        await farewell(client, _bytes(_denied(destination, decision, self.as_srt)))

    async def fail(self, client: socket.socket, destination: Destination, problem: str, ca: Ca) -> None:
        await farewell(client, _bytes(_failed(destination, problem)))


def _denied(destination: Destination, decision: Decision, as_srt: bool) -> Response:
    from sandbox.network.http.denied_response import denied

    return denied(str(destination), decision, as_srt=as_srt)


def _failed(destination: Destination, problem: str) -> Response:
    from sandbox.network.http.denied_response import unreachable

    return unreachable(str(destination), problem)


def _bytes(response: Response) -> bytes:
    from sandbox.network.http.denied_response import plain_bytes

    return plain_bytes(response)


async def refuse(
    client: socket.socket, destination: Destination, ca: Ca, answer: Callable[[], Response], *, inside_tls: bool = True
) -> None:
    """Ends a connection that is not allowed or cannot be made. A client that speaks HTTP, also as HTTP/2 or, with
    `inside_tls`, inside TLS, gets what `answer` makes; any other gets a TLS alert or a reset."""
    try:
        async with asyncio.timeout(FIRST_WORD_OF_HTTP if destination.port in HTTP_PORTS else FIRST_WORD):
            peeked, found = await first_bytes(client)
    except (TimeoutError, OSError):
        return reset(client)
    if found.kind == "http" and peeked.startswith(b"PRI * HTTP/2"):
        from sandbox.network.intercept.refuse_over_http import answer_http2

        await answer_http2(client, destination.host, answer)
    elif found.kind == "http":
        await farewell(client, _bytes(answer()))
    elif found.hello is not None:
        from sandbox.network.intercept.refuse_over_http import answer_tls, speaks_http

        if inside_tls and speaks_http(found.hello):
            await answer_tls(client, found.hello, destination.host, ca(), answer)
        else:
            await farewell(client, _TLS_ACCESS_DENIED)
    else:
        reset(client)


async def farewell(client: socket.socket, last: bytes) -> None:
    """Sends `last` and closes. Reads a little more first: unread input would turn the close into a reset, which would
    overtake what was sent."""
    try:
        async with asyncio.timeout(_LAST_WORD):
            await asyncio.get_running_loop().sock_sendall(client, last)
            client.shutdown(socket.SHUT_WR)
            for _ in range(16):
                try:
                    if not client.recv(65536):
                        break
                except BlockingIOError:
                    await readable(client)
    except (TimeoutError, OSError):
        pass
    client.close()
