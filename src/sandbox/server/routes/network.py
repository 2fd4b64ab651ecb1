"""A sandbox's network policy: what is in force, and changes to it while it runs."""

from __future__ import annotations

from typing import Any

from litestar import get, patch, post

from sandbox.rpc import messages as m
from sandbox.server.guard import require
from sandbox.server.reach import Reached
from sandbox.server.scopes import Access
from sandbox.server.server import Server
from sandbox.server.shapes import Allow, Done


@get("/v1/sandboxes/{id:str}/network", opt={"verb": "read"})
async def policy(server: Server, reached: Reached) -> dict[str, Any]:
    """The `network` section in force, without secrets."""
    return await server.run(lambda: {"network": dict(reached.call("policy", m.Nothing())["network"])})


@patch("/v1/sandboxes/{id:str}/network", opt={"verb": "network"})
async def update(server: Server, access: Access, reached: Reached, data: dict[str, Any]) -> Done:
    """Changes settings of the `network` section, for new connections at once. Without scope `host`: only tighter."""

    # The sandbox itself tightens what is in force at that moment, so two concurrent changes do not undo each other.
    method = "update_network" if access.may("host") else "tighten_network"
    await server.run(lambda: reached.call(method, data))
    return Done()


@post("/v1/sandboxes/{id:str}/allow", opt={"verb": "network"}, status_code=200)
async def allow(server: Server, access: Access, reached: Reached, data: Allow) -> Done:
    """Allows one more host: until the sandbox ends, or always (then also in the owner's config)."""
    require(access, "host")

    def change() -> None:
        reached.call("allow_host", m.AllowHost(data.host))
        if data.answer == "always":
            from sandbox.asks.stored_answers import keep_host

            keep_host(data.host)

    await server.run(change)
    return Done()


ROUTES = [policy, update, allow]
