"""Snapshots and forks, made with our checkpoints. A snapshot's id is a checkpoint's name; sandboxes start from it."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from litestar import Request, delete, get, post
from msgspec import Meta, Struct

from sandbox.checkpoints import store
from sandbox.errors import SandboxError
from sandbox.server.e2b import shapes
from sandbox.server.e2b.control import Seconds, plain, reached_of, read
from sandbox.server.e2b.endings import TIMEOUT, begin_to_pause, extend
from sandbox.server.e2b.reaching import home_of
from sandbox.server.e2b.refusals import E2bRefusal, not_supported
from sandbox.server.e2b.state import SandboxState, now
from sandbox.server.routes.checkpoints import forked, removed
from sandbox.server.scopes import Access
from sandbox.server.server import Server

Asking = Request[Any, Any, Any]


class Snapshot(Struct):
    name: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    memory: bool | None = None


class Fork(Struct):
    timeout: Seconds = TIMEOUT
    count: Annotated[int, Meta(ge=1, le=64)] = 1


@post("/sandboxes/{id:str}/snapshots", status_code=201, **plain("create"))
async def create(request: Asking, server: Server, access: Access, id: str) -> dict[str, Any]:
    """Saves a sandbox, which keeps running."""
    asked: Snapshot = await read(request, Snapshot)
    if asked.memory is not None:
        raise not_supported("choosing what a snapshot saves: the engine decides")
    reached = await reached_of(server, access, id)
    made = await server.run(lambda: reached.sandbox.checkpoint(asked.name))
    return {"snapshotID": made.name, "names": [made.name]}


@get("/snapshots", **plain("read"))
async def listing(request: Asking, server: Server, access: Access) -> list[dict[str, Any]]:
    """The snapshots that the token reaches."""
    of, name = (request.query_params.get(key) for key in ("sandboxID", "name"))
    found = await server.run(store.checkpoints)
    return [
        {"snapshotID": one.name, "names": [one.name]}
        for one in found
        if access.reaches(one.sandbox) and of in (None, one.sandbox) and name in (None, one.name)
    ]


@delete("/templates/{name:str}", status_code=204, **plain("kill"))
async def remove(server: Server, access: Access, name: str) -> None:
    """Removes a snapshot."""
    await server.run(lambda: removed(access, name))


@post("/sandboxes/{id:str}/fork", status_code=201, **plain("create"))
async def fork(request: Asking, server: Server, access: Access, id: str) -> list[dict[str, Any]]:
    """Starts new sandboxes from the current state of this one."""
    asked: Fork = await read(request, Fork)
    reached = await reached_of(server, access, id)
    try:
        made = await server.run(lambda: forked(server, reached, asked.count))
    except SandboxError as problem:
        raise E2bRefusal(400, str(problem)) from None
    ids = [one.id for one in made.sandboxes]
    try:
        states = [await _begun(server, access, server.e2b.of(id), one, asked.timeout) for one in ids]
    except BaseException:
        # The client is told of none of them, so none may stay: perhaps the owner allows less time than it asked for.
        await server.end(partial(_end_all, server, ids))
        server.reach.forget_ended()
        raise
    return [
        {"sandbox": shapes.opened(server, access, request, one, state)} for one, state in zip(ids, states, strict=True)
    ]


def _end_all(server: Server, ids: list[str]) -> None:
    for one in ids:
        try:
            server.sandboxes.end(one)
        except SandboxError:
            pass  # it has ended by itself; the others have not
        server.places.freed()


async def _begun(server: Server, access: Access, parent: SandboxState, id: str, timeout: int) -> SandboxState:
    """Gives a fork what E2B's clients know of its parent, and its time. Raises Denied if the owner allows less."""
    new = SandboxState(template=parent.template, ends=now() + timeout)
    new.started = now()
    new.pauses, new.wakes = parent.pauses, parent.wakes
    new.metadata, new.envs, new.internet = dict(parent.metadata), dict(parent.envs), parent.internet
    server.e2b.add(id, new)
    copy = await reached_of(server, access, id)
    new.home = await server.run(partial(home_of, copy))
    if new.pauses:
        await begin_to_pause(server, access, copy, new, timeout)
    else:
        await extend(server, access, copy, timeout)
    return new


ROUTES = [create, listing, remove, fork]
