"""Tickets for WebSockets from a browser; what a token may do; whether the server answers and can build sandboxes."""

from __future__ import annotations

from typing import Any

from litestar import get, post

from sandbox.server.refusal import Refusal
from sandbox.server.scopes import Access
from sandbox.server.server import Server
from sandbox.server.tickets import LIFETIME, PROTOCOL


@post("/v1/tickets", opt={"public": True}, status_code=201)
async def ticket(server: Server, access: Access) -> dict[str, Any]:
    """A ticket for one WebSocket, with this token's scopes: offer `protocol` as its subprotocol within 30 seconds."""
    if not access.scopes:
        raise Refusal(401, "unauthorized", "send a token: Authorization: Bearer …", {"www-authenticate": "Bearer"})
    return {"protocol": f"{PROTOCOL}{server.tickets.new(access)}", "expires_in": LIFETIME}


@get("/v1/me", opt={"public": True})
async def me(access: Access) -> dict[str, Any]:
    """What this token may do."""
    if not access.scopes:
        raise Refusal(401, "unauthorized", "send a token: Authorization: Bearer …", {"www-authenticate": "Bearer"})
    may = sorted(verb for verb in access.scopes if access.may(verb))
    return {"name": access.name, "scopes": may, "sandboxes": sorted(access.sandboxes)}


@get("/v1/health", opt={"public": True})
async def health() -> dict[str, Any]:
    """Whether the server answers. Reveals nothing else, because anybody may ask."""
    return {"ok": True}


@get("/v1/ready", opt={"public": True})
async def ready(server: Server) -> dict[str, Any]:
    """Whether this server can start new sandboxes: a test sandbox could be built, and the server is not shutting down.

    503 otherwise. Reveals nothing else, because anybody may ask; the server prints the reason.
    """
    if server.draining.is_set() or not await server.probe.good():
        raise Refusal(503, "not_ready", "this server cannot start sandboxes; its own output says why")
    return {"ok": True}


ROUTES = [ticket, me, health, ready]
