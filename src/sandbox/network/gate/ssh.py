"""Whether both ends of a connection speak ssh, decided before any of the tenant's bytes are sent on.

Each side of ssh begins with a line `SSH-2.0-…` (RFC 4253, 4.2). The server's line is passed to the tenant, because some
clients wait for it. The tenant's line is only peeked at.
"""

from __future__ import annotations

import asyncio
import socket

from sandbox.network.gate.first_bytes import peek
from sandbox.network.gate.relay import either_readable

_MARK = b"SSH-"
_LONGEST = 255  # bytes of a first line, with its end


async def both_speak_ssh(client: socket.socket, upstream: socket.socket) -> bool:
    """Whether both sides begin as ssh does. Neither reads nor forwards any of the tenant's bytes. Callers set the time
    limit."""
    await either_readable(client, upstream)
    try:
        said = client.recv(len(_MARK), socket.MSG_PEEK)
        if not said or not _MARK.startswith(said):
            return False  # TLS or HTTP on ssh's port: no need to wait for the server
    except BlockingIOError:
        pass  # the client waits for the server
    line = await _first_line(upstream)
    if not line.startswith(_MARK):
        return False
    upstream.recv(len(line))
    await asyncio.get_running_loop().sock_sendall(client, line)
    return (await peek(client, len(_MARK))).startswith(_MARK)


async def _first_line(sock: socket.socket) -> bytes:
    """The first line in `sock`, left unread; b"" when it is too long or incomplete."""
    seen = b""
    while True:
        data = await peek(sock, len(seen) + 1)
        line, end, _ = data.partition(b"\n")
        if end or len(data) >= _LONGEST or len(data) <= len(seen):
            return line + end if end and len(line) < _LONGEST else b""
        seen = data
