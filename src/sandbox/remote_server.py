"""A sandbox on a server (`sandbox serve`), with the methods of `Sandbox`.

    with Sandbox.connect("https://sandboxes.example.org", token) as sb:
        print(sb.exec("echo hello").stdout)

It is `Client`, with the lines of JSON-RPC in the frames of a WebSocket.
"""

from __future__ import annotations

import socket
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sandbox.client import Client
from sandbox.errors import SandboxError
from sandbox.rpc.connection import Connection
from sandbox.websocket import WebSocketClient

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

_PIECE = 2**17  # bytes of a frame


def remote(
    url: str,
    token: str,
    config: Mapping[str, Any] | None = None,
    *,
    id: str | None = None,
    hooks: object | None = None,
    certificates: str | None = None,
) -> Client:
    """Creates a sandbox on the server at `url`, or with `id` uses one that runs there. It has the methods of `Sandbox`.

    One that was created here ends when it is closed, or when this process ends. `certificates` is a file of
    certificates to trust besides the system's. Raises what `Sandbox` raises, Denied when the token may not do that, and
    SandboxError when the server cannot be reached.
    """
    server = url.rstrip("/")

    def reach(id: str) -> Connection:
        return _connection(f"{server}/v1/sandboxes/{quote(id, safe='')}/rpc", token, certificates)

    if id is not None:
        client = Client(connection=reach(id))
    else:
        connection = _connection(f"{server}/v1/rpc", token, certificates)
        client = Client(config, hooks=hooks, connection=connection, create=True)
    client._reach = reach
    return client


def _connection(url: str, token: str, certificates: str | None, context: ssl.SSLContext | None = None) -> Connection:
    """JSON-RPC over a WebSocket. `context`: mutual TLS, as a cluster has it."""
    headers = {"Authorization": f"Bearer {token}"}
    web = WebSocketClient(url, headers, certificates=certificates, context=context)
    ours, theirs = socket.socketpair()
    carriers = [
        Thread(target=carry, args=(web, theirs), name="sandbox-remote", daemon=True) for carry in (_outwards, _inwards)
    ]
    for each in carriers:
        each.start()

    def finish() -> None:
        ours.shutdown(socket.SHUT_RDWR)
        web.close()
        for each in carriers:
            each.join()
        theirs.close()
        web.free()

    connection = Connection(ours.fileno(), ours.fileno(), finish)
    connection._kept = ours
    return connection


def _outwards(web: WebSocketClient, line: socket.socket) -> None:
    try:
        while data := line.recv(_PIECE):
            web.send(data)
    except (SandboxError, OSError):
        pass  # the other side has ended, which the reader notices


def _inwards(web: WebSocketClient, line: socket.socket) -> None:
    try:
        while data := web.receive():
            line.sendall(data)
    except (SandboxError, OSError):
        pass
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
