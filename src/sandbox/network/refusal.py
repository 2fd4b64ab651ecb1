"""How a tenant learns that it may not: in the words of the protocol it speaks, or by a reset."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from sandbox.network.relay import reset
from sandbox.network.sniff import first_bytes, readable

if TYPE_CHECKING:
    from sandbox.policy.decision import Decision

# Clients that speak first do so at once; one that waits for the other side gets its reset after this.
FIRST_WORD = 0.3
_LAST_WORD = 1.0
_TLS_ACCESS_DENIED = bytes((0x15, 3, 1, 0, 2, 2, 49))  # a fatal alert
_REASONS = {400: "Bad Request", 403: "Forbidden", 407: "Proxy Authentication Required", 502: "Bad Gateway"}


def http_refusal(decision: Decision, status: int = 403) -> bytes:
    """The whole response: what was refused, by which rule, and how to allow it."""
    body = (
        f"Blocked by the sandbox: {decision.reason}.\nRule: {decision.rule}\n"
        "Retrying will not help: only the sandbox's owner can change this rule.\n"
    )
    return http_error(status, body, "X-Proxy-Error: blocked-by-allowlist\r\n")


def http_error(status: int, body: str, headers: str = "") -> bytes:
    """A plain-text response that ends the connection."""
    data = body.encode("ascii", "backslashreplace")
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n{headers}"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + data


class Manner:
    """How one kind of client is spoken to. This one: somebody who thinks it talks to the destination itself."""

    async def welcome(self, client: socket.socket, upstream: socket.socket | None) -> None:
        """From now on it does: with `upstream`, or, when that is None, with the interceptor."""

    async def deny(self, client: socket.socket, decision: Decision) -> None:
        """It may not."""
        await refuse(client, http_refusal(decision))

    async def fail(self, client: socket.socket, problem: str) -> None:
        """It may, but cannot."""
        await refuse(client, http_error(502, f"The sandbox could not connect: {problem}\n"))


async def refuse(client: socket.socket, response: bytes) -> None:
    """Ends a connection that may not be, or cannot be made. Speakers of HTTP get `response`."""
    try:
        async with asyncio.timeout(FIRST_WORD):
            _, found = await first_bytes(client)
    except (TimeoutError, OSError):
        return reset(client)
    if found.kind == "http":
        await farewell(client, response)
    elif found.kind == "tls":
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
