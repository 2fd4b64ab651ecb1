"""Whether a token may use a route, and the values that routes get from the request."""

from __future__ import annotations

from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler

from sandbox.errors import NotFound, SandboxError
from sandbox.manager.manager import SandboxManager
from sandbox.manager.managers import DEFAULT
from sandbox.server.errors import told
from sandbox.server.front import ACCESS
from sandbox.server.reach import Reached
from sandbox.server.refusal import Refusal
from sandbox.server.scopes import Access, needed
from sandbox.server.server import Server

Connection = ASGIConnection[Any, Any, Any, Any]


def guard(connection: Connection, handler: BaseRouteHandler) -> None:
    """Checks the token against the route's verb. A route without a verb needs `host`, unless it is marked public."""
    access = connection.scope.get(ACCESS)
    if isinstance(access, Access) and access.surface and access.surface != handler.opt.get("surface"):
        raise Refusal(401, "unauthorized", "that token is not for this", {"www-authenticate": "Bearer"})
    if handler.opt.get("public"):
        return
    if not isinstance(access, Access):
        raise Refusal(401, "unauthorized", "send a token: Authorization: Bearer …", {"www-authenticate": "Bearer"})
    require(access, handler.opt.get("verb", "host"))


def require(access: Access, verb: str) -> None:
    """Raises Refusal when the token does not have that scope."""
    if not access.may(verb):
        raise Refusal(403, "forbidden", f"this token has no scope {verb!r}; see `sandbox serve token new`")


def manager_of(server: Server, access: Access, name: str = DEFAULT) -> SandboxManager:
    """The managed sandbox of that name. Raises NotFound, also when the token may not reach it."""
    manager = server.managers.get(name)
    sandbox = manager.sandbox
    if not access.reaches(name, sandbox.id if sandbox is not None else name):
        raise NotFound("no managed sandbox {name!r}", name=name)
    return manager


def access_of(scope: dict[str, Any]) -> Access:
    """Who sent the request. Without a token, on a public route: an Access with no scopes."""
    return scope.get(ACCESS) or Access("", frozenset())


async def reached_by(scope: dict[str, Any], server: Server, access: Access, id: str) -> Reached:
    """The running sandbox that the path names. Raises Refusal, also when it has no walls and the token no `host`."""
    reached = await _found(server, access, id)
    verb = scope["route_handler"].opt.get("verb", "host")
    require(access, needed(verb, walled=reached.walled))
    return reached


async def _found(server: Server, access: Access, id: str) -> Reached:
    known = server.reach.known(id)
    if known is not None and access.reaches(known.id, known.name):
        return known
    try:
        return await server.run(lambda: server.reach.get(id, access))
    except SandboxError as problem:
        status, body = told(problem)  # converted here: our exception handlers are not called for WebSockets
        raise Refusal(status, body.code, body.message) from None
