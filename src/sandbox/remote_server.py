"""A sandbox on a server (`sandbox serve`), with the methods of `Sandbox`.

    with Sandbox.connect("https://sandboxes.example.org", token) as sb:
        print(sb.exec("echo hello").stdout)

It is a `Client` whose lines of JSON-RPC travel in the frames of a WebSocket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sandbox.client import Client
from sandbox.errors import InvalidArgument, SandboxError
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

    A sandbox created here ends when it is closed, or when this process ends. `certificates` is a file of certificates
    to trust in place of the system's. Raises what `Sandbox` raises, Denied when the token may not do that, and
    SandboxError when the server cannot be reached. InvalidArgument: a sandbox that runs takes no `config` or `hooks`.
    """
    if id is not None and (config is not None or hooks is not None):
        raise InvalidArgument("a sandbox that runs already takes neither a configuration nor hooks")
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
    """JSON-RPC over a WebSocket. `context` is for mutual TLS, as a cluster uses it."""
    headers = {"Authorization": f"Bearer {token}"}
    web = WebSocketClient(url, headers, certificates=certificates, context=context)
    return Connection(web.receive, lambda data: _sent(web, data), web.close, _Carrier(web))


def _sent(web: WebSocketClient, data: memoryview) -> int:
    """Sends one frame. Raises OSError when the connection has ended, as writing to a descriptor does."""
    piece = bytes(data[:_PIECE])
    try:
        web.send(piece)
    except SandboxError as problem:
        raise BrokenPipeError from problem
    return len(piece)


class _Carrier:
    """The WebSocket in the shape that `Connection` expects of what it owns."""

    def __init__(self, web: WebSocketClient) -> None:
        self._web = web

    def shutdown(self, how: int, /) -> None:
        self._web.cut()

    def close(self) -> None:
        self._web.free()
