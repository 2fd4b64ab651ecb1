"""Asks the owner's SOCKS5 proxy for a connection. The proxy resolves the name."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from sandbox.network.gate.first_bytes import exactly
from sandbox.policy.addresses import parse_address

if TYPE_CHECKING:
    from sandbox.network.destination import Destination

_NO_LOGIN, _PASSWORD = 0, 2
_KINDS = {1: 4, 4: 16}  # sizes of addresses in a reply


async def ask_socks(sock: socket.socket, destination: Destination, credentials: tuple[str, str] | None) -> None:
    """Makes the proxy connect `sock` to `destination`. Raises OSError."""
    loop = asyncio.get_running_loop()
    method = _NO_LOGIN if credentials is None else _PASSWORD
    await loop.sock_sendall(sock, bytes((5, 1, method)))
    if await exactly(sock, 2) != bytes((5, method)):
        raise OSError("the upstream SOCKS proxy wants another login")
    if credentials is not None:
        name, password = (one.encode() for one in credentials)
        await loop.sock_sendall(sock, bytes((1, len(name))) + name + bytes((len(password),)) + password)
        if (await exactly(sock, 2))[1:] != b"\0":
            raise OSError("the upstream SOCKS proxy refused the login")
    await loop.sock_sendall(sock, b"\5\1\0" + _address(destination.host) + destination.port.to_bytes(2, "big"))
    _, answer, _, kind = await exactly(sock, 4)
    if answer != 0:
        raise OSError(f"the upstream SOCKS proxy refused {destination} ({answer})")
    size = _KINDS.get(kind) or (await exactly(sock, 1))[0]
    await exactly(sock, size + 2)


def _address(host: str) -> bytes:
    if parse_address(host) is None:
        name = host.encode("ascii")
        return bytes((3, len(name))) + name
    family, kind = (socket.AF_INET6, 4) if ":" in host else (socket.AF_INET, 1)
    return bytes((kind,)) + socket.inet_pton(family, host)
