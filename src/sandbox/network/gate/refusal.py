"""How a tenant learns that it may not: in the words of the protocol it speaks, or by a reset."""

from __future__ import annotations

import asyncio
import socket
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

# Clients that speak first do so at once (a JVM after a while); one that waits for the other side gets its reset after
# this.
FIRST_WORD = 2.0
_LAST_WORD = 1.0
_TLS_ACCESS_DENIED = bytes((0x15, 3, 1, 0, 2, 2, 49))  # a fatal alert
_REASONS = {400: "Bad Request", 403: "Forbidden", 407: "Proxy Authentication Required", 502: "Bad Gateway"}


def http_refusal(decision: Decision, status: int = 403) -> bytes:
    """The whole response: what was refused, by which rule, and how to allow it."""
    body = (
        f"Blocked by the sandbox: {decision.reason}.\nRule: {decision.rule}\n"
        "Retrying will not help: only the sandbox's owner can change this rule.\n"
    )
    from sandbox.network.http.denied_response import phrase

    return http_error(status, body, "X-Proxy-Error: blocked-by-allowlist\r\n", phrase(decision).decode())


def http_error(status: int, body: str, headers: str = "", phrase: str = "") -> bytes:
    """A plain-text response that ends the connection."""
    data = body.encode("ascii", "backslashreplace")
    head = (
        f"HTTP/1.1 {status} {phrase or _REASONS[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n{headers}"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + data


class ClientStyle:
    """How one kind of client is spoken to. This one: somebody who thinks it talks to the destination itself."""

    async def welcome(self, client: socket.socket, upstream: socket.socket | None) -> None:
        """From now on it does: with `upstream`, or, when that is None, with the interceptor."""

    async def deny(self, client: socket.socket, destination: Destination, decision: Decision, ca: Ca) -> None:
        """It may not."""
        await refuse(client, destination, ca, http_refusal(decision), lambda: _denied(destination, decision))

    async def fail(self, client: socket.socket, destination: Destination, problem: str, ca: Ca) -> None:
        """It may, but cannot."""
        failed = http_error(502, f"The sandbox could not connect: {destination}: {problem}\n")
        await refuse(client, destination, ca, failed, lambda: _failed(destination, problem))


def _denied(destination: Destination, decision: Decision) -> Response:
    from sandbox.network.http.denied_response import denied

    return denied(str(destination), decision)


def _failed(destination: Destination, problem: str) -> Response:
    from sandbox.network.http.denied_response import unreachable

    return unreachable(str(destination), problem)


async def refuse(
    client: socket.socket, destination: Destination, ca: Ca, response: bytes, answer: Callable[[], Response]
) -> None:
    """Ends a connection that may not be, or cannot be made. Speakers of HTTP get `response`; inside TLS, and over
    HTTP/2, what `answer` makes."""
    try:
        async with asyncio.timeout(FIRST_WORD):
            peeked, found = await first_bytes(client)
    except (TimeoutError, OSError):
        return reset(client)
    if found.kind == "http" and peeked.startswith(b"PRI * HTTP/2"):
        from sandbox.network.intercept.refuse_over_http import answer_http2

        await answer_http2(client, destination.host, answer)
    elif found.kind == "http":
        await farewell(client, response)
    elif found.hello is not None:
        from sandbox.network.intercept.refuse_over_http import answer_tls, speaks_http

        if speaks_http(found.hello):
            await answer_tls(client, found.hello, destination.host, ca(), answer)
        else:
            await farewell(client, _TLS_ACCESS_DENIED)
    else:
        reset(client)


async def farewell(client: socket.socket, last: bytes) -> None:
    """Sends `last` and closes. Unread input would turn the close into a reset that overtakes it, so read on a bit."""
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
