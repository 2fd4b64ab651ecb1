"""`/v1/nodes`: the machines of a cluster, for a server that was told of one (`sandbox serve --cluster`)."""

from __future__ import annotations

from typing import Any

from litestar import get

from sandbox.server.refusal import Refusal
from sandbox.server.scopes import Access
from sandbox.server.server import Server


@get("/v1/nodes", opt={"verb": "read"})
async def nodes(server: Server, access: Access) -> dict[str, Any]:
    """The machines of the cluster, its teams, and who waits. Shows nothing of what is in the sandboxes."""
    if access.sandboxes:
        raise Refusal(403, "forbidden", "nodes are about every sandbox; this token is for some")
    look = server.settings.cluster
    if look is None:
        raise Refusal(404, "not_found", "this server shows no cluster; see `sandbox serve --cluster`")
    found: dict[str, Any] = await server.run(look)
    return found


ROUTES = [nodes]
