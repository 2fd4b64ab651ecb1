"""Pause, checkpoint, fork and restore: see docs/checkpoints.md."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import delete, get, post

from sandbox.checkpoints import store
from sandbox.client import Client
from sandbox.config.home import home
from sandbox.errors import NotFound
from sandbox.registry.registry import find
from sandbox.rpc import messages as m
from sandbox.server.reach import Reached
from sandbox.server.refusal import Refusal
from sandbox.server.routes.sandboxes import described
from sandbox.server.scopes import Access
from sandbox.server.server import Server
from sandbox.server.shapes import Described, Done, Forks, Listed, Restored, SaveAs, Saved, SavedOnes


@post("/v1/sandboxes/{id:str}/pause", opt={"verb": "kill"}, status_code=200)
async def pause(server: Server, reached: Reached) -> Done:
    """Freezes everything inside until `resume`."""
    await server.run(reached.sandbox.pause)
    return Done()


@post("/v1/sandboxes/{id:str}/resume", opt={"verb": "kill"}, status_code=200)
async def resume(server: Server, reached: Reached) -> Done:
    """Lets everything inside continue."""
    await server.run(reached.sandbox.resume)
    return Done()


@post("/v1/sandboxes/{id:str}/checkpoint", opt={"verb": "create"}, status_code=201)
async def checkpoint(server: Server, reached: Reached, data: SaveAs | None = None) -> Saved:
    """Saves a sandbox, which keeps running."""
    made = await server.run(lambda: reached.sandbox.checkpoint(data.name if data is not None else None))
    return _saved(made)


@post("/v1/sandboxes/{id:str}/fork", opt={"verb": "create"}, status_code=201)
async def fork(server: Server, reached: Reached, data: Forks | None = None) -> Listed:
    """Starts new sandboxes from the current state of this one. They end with the process that owns the original."""
    return await server.run(lambda: forked(server, reached, data.count if data is not None else 1))


def forked(server: Server, reached: Reached, count: int) -> Listed:
    """Starts that many forks. Raises what `fork` raises."""
    sandbox = reached.sandbox
    if isinstance(sandbox, Client):
        ids = list(reached.call("fork", m.Fork(count))["ids"])
        return Listed([described(server, find(home(), id)) for id in ids])
    with server.places.hold(count):
        made = sandbox.fork(count)
        for one in made:
            server.sandboxes.adopt(one, reached.id)
            server.reach.add(one)
    return Listed([described(server, find(home(), one.id)) for one in made])


@get("/v1/checkpoints", opt={"verb": "read"})
async def listing(server: Server, access: Access) -> SavedOnes:
    """The checkpoints of this user; with a token for certain sandboxes, only theirs."""
    found = await server.run(store.checkpoints)
    return SavedOnes([_saved(one) for one in found if access.reaches(one.sandbox)])


@delete("/v1/checkpoints/{name:str}", opt={"verb": "kill"}, status_code=200)
async def remove(server: Server, access: Access, name: str) -> Done:
    """Removes a checkpoint."""
    await server.run(lambda: removed(access, name))
    return Done()


def removed(access: Access, name: str) -> None:
    """Removes a checkpoint. Raises NotFound, also when the token may not reach its sandbox."""
    if not any(one.name == name and access.reaches(one.sandbox) for one in store.checkpoints()):
        raise NotFound("there is no checkpoint {name}", name=name)
    store.remove(name)


@post("/v1/checkpoints/{name:str}/restore", opt={"verb": "host"}, status_code=201)
async def restore(server: Server, name: str, data: Restored | None = None) -> Described:
    """Starts a sandbox from a checkpoint. Needs scope `host`: it may do whatever the saved sandbox was allowed to."""
    asked = data or Restored()
    called = asked.name or ""
    if called and not server.reach.claim(called):
        raise Refusal(409, "conflict", f"a running sandbox is called {called!r} already")

    def act() -> Described:
        try:
            with server.places.hold():
                reached = server.reach.add(server.sandboxes.restore(name, asked.config), called)
        finally:
            server.reach.release(called)
        return described(server, find(home(), reached.id))

    return await server.run(act)


def _saved(one: Any) -> Saved:
    return msgspec.convert({**dict(one), "lost": list(one.lost)}, Saved)


ROUTES = [pause, resume, checkpoint, fork, listing, remove, restore]
