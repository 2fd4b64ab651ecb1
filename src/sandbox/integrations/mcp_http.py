"""MCP over streamable HTTP on loopback. A request needs a token, and must not come from a web page.

Every user of this machine can connect, so connections without a request are bounded in number and time, as those of
`sandbox serve` are.
"""

from __future__ import annotations

import hmac
import resource
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

from sandbox.integrations.mcp_sessions import SessionSandboxes, of_transport
from sandbox.server.connections import BACKLOG, bounded

PATH = "/mcp"
OPEN_MOST = 1000  # sessions that clients have open. Far fewer have a sandbox: see mcp_sessions.


def serve(
    server: MCPServer[Any], sandboxes: SessionSandboxes, port: int, idle: float, tell: Callable[[str, str], object]
) -> int:
    """Serves until it is interrupted. Sessions end after `idle` seconds without a call. `tell` is called with the
    address and the token."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    listener = socket.create_server(("127.0.0.1", port))
    host = f"127.0.0.1:{listener.getsockname()[1]}"
    token = secrets.token_urlsafe(32)
    allowed = [host, host.replace("127.0.0.1", "localhost")]
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        session_idle_timeout=idle,
        max_sessions=OPEN_MOST,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=allowed,
            allowed_origins=[f"http://{one}" for one in allowed],  # only this server itself, which serves no pages
        ),
    )
    tell(f"http://{host}{PATH}", token)
    checked = with_token(app, token, sandboxes.end)
    # Only errors are printed: anybody who connects can cause warnings.
    config = uvicorn.Config(checked, http=bounded(), backlog=BACKLOG, ws="none", log_level="error", server_header=False)
    uvicorn.Server(config).run(sockets=[listener])
    return 0


def with_token(app: Any, token: str, ended: Callable[[str], Awaitable[None]]) -> Any:
    """Lets only requests with the token through to `app`. `ended` is called with each session that a client ends."""
    wanted = f"Bearer {token}".encode()

    async def checked(scope: dict[str, Any], receive: Any, send: Any) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
            return
        if not hmac.compare_digest(given, wanted):
            headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        if scope["method"] == "DELETE":
            await _delete(app, scope, receive, send, ended)
        else:
            await app(scope, receive, send)

    return checked


async def _delete(app: Any, scope: Any, receive: Any, send: Any, ended: Callable[[str], Awaitable[None]]) -> None:
    """Ends a session before its client has the answer: who reads that may rely on the sandbox being gone."""
    answer: list[dict[str, Any]] = []

    async def keep(message: dict[str, Any]) -> None:
        answer.append(message)

    await app(scope, receive, keep)
    name = dict(scope["headers"]).get(b"mcp-session-id", b"").decode("latin-1")
    if name and answer and answer[0].get("status", 500) < 300:
        await ended(of_transport(name))
    for message in answer:
        await send(message)
