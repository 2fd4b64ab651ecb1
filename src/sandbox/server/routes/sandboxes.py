"""`/v1/sandboxes`: create, list, inspect, extend and end sandboxes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

from litestar import delete, get, post
from litestar.params import Parameter

from sandbox.config.home import home
from sandbox.errors import ConfigError, Denied, NotFound
from sandbox.registry.registry import entries, find
from sandbox.rpc import messages as m
from sandbox.server import lifetimes
from sandbox.server.reach import Reached, remembered_name
from sandbox.server.refusal import Refusal
from sandbox.server.scopes import Access
from sandbox.server.server import Server
from sandbox.server.shapes import Created, Described, Detailed, Done, Listed
from sandbox.signing.paths import holds_key

if TYPE_CHECKING:
    from sandbox.registry.registry import Entry
    from sandbox.sandbox import Sandbox

Status = Annotated[str | None, Parameter(description="only those of this status", pattern="^[a-z]*(?!\\n)$")]


@post("/v1/sandboxes", opt={"verb": "create"}, status_code=201)
async def create(server: Server, access: Access, data: Created) -> Described:
    """Creates a sandbox. Without scope `host`, `config` may only tighten what the server's owner has set."""
    name = data.name or ""
    if name and not server.reach.claim(name):
        raise Refusal(409, "conflict", f"a running sandbox is called {name!r} already")
    return await server.run(lambda: _create(server, access, data.config, name))


def _create(server: Server, access: Access, config: dict[str, Any], name: str) -> Described:
    try:
        reached = server.reach.add(start(server, access, config, name), name)
    finally:
        server.reach.release(name)
    return described(server, find(home(), reached.id))


def start(server: Server, access: Access, config: dict[str, Any], name: str, hooks: object | None = None) -> Sandbox:
    """Starts a sandbox within what the token allows, when there is a place for it. Without scope `host`, `config` may
    only tighten what the owner has set."""
    with server.leasing(access) as made, server.places.hold():
        made.append(_start(server, access, config, name, hooks))
        return made[0]


def _start(server: Server, access: Access, config: dict[str, Any], name: str, hooks: object | None) -> Sandbox:
    filesystem = config.get("filesystem", {})
    if not isinstance(filesystem, dict):
        raise ConfigError("must be a mapping", path="filesystem")
    wanted = filesystem.get("root")
    if server.ready is not None and hooks is None:
        ready = server.ready.take(config, widened=access.may("host"))
        if ready is not None:
            return ready
    if access.may("host"):
        if set(config) == {"srt"}:
            return server.sandboxes.create(config, hooks=hooks)
        root = server.workspace(name) if wanted is None else wanted
        return server.sandboxes.create({**config, "filesystem": {**filesystem, "root": root}}, hooks=hooks)
    root = server.workspace(name) if wanted is None else server.settings.project(str(wanted))
    more = {key: value for key, value in filesystem.items() if key != "root"}
    return server.sandboxes.create_restricted({**config, "filesystem": more}, root)


@get("/v1/sandboxes", opt={"verb": "read"})
async def listing(server: Server, access: Access, status: Status = None) -> Listed:
    """Every sandbox of this user that the token reaches, newest first, including those of other programs."""
    server.reach.forget_ended()
    found = await server.run(lambda: entries(home()))
    return Listed(
        [
            described(server, one)
            for one in found
            if status in (None, one.status)
            and not server.reach.held(one.id)
            and access.reaches(one.id, server.reach.name_of(one.id))
        ]
    )


@get("/v1/sandboxes/{id:str}", opt={"verb": "read"})
async def detail(server: Server, access: Access, id: str) -> Detailed:
    """One sandbox: its configuration without secrets and, while it runs, the resources it uses."""
    return await server.run(lambda: _detail(server, access, id))


def _detail(server: Server, access: Access, id: str) -> Detailed:
    entry = entry_of(server, access, id)
    stats, directory = None, ""
    if entry.running:
        reached = server.reach.get(entry.id, access)
        stats, directory = dict(reached.sandbox.stats()), reached.sandbox.directory
    return Detailed(sandbox=described(server, entry), config=entry.config, stats=stats, directory=directory)


@delete("/v1/sandboxes/{id:str}", opt={"verb": "kill"}, status_code=200)
async def kill(server: Server, access: Access, id: str) -> Done:
    """Ends a running sandbox; returns when it is gone. Refuses the signer's own sandbox: its owner ends the signer."""

    def end() -> None:
        entry = entry_of(server, access, id)
        if holds_key(entry.id):
            raise Denied("signer", "stop the signer on the machine it runs on")
        server.sandboxes.end(entry.id)
        server.places.freed()

    await server.end(end)
    server.reach.forget_ended()
    return Done()


@get("/v1/sandboxes/{id:str}/stats", opt={"verb": "read"})
async def stats(server: Server, reached: Reached) -> dict[str, Any]:
    """Memory, processor time and processes; null where this machine cannot measure it."""
    return await server.run(lambda: dict(reached.sandbox.stats()))


@get("/v1/sandboxes/{id:str}/processes", opt={"verb": "read"})
async def processes(server: Server, reached: Reached) -> dict[str, Any]:
    """The commands that run now, whoever started them."""
    return await server.run(lambda: reached.call("processes", m.Nothing()))


@post("/v1/sandboxes/{id:str}/extend", opt={"verb": "kill"}, status_code=200)
async def extend(server: Server, access: Access, reached: Reached, data: m.Extend) -> Done:
    """Changes how long the sandbox lives, counted from now. null means no limit; what is absent stays as it is.

    Without scope `host`, it cannot exceed the owner's `limits`.
    """

    def change() -> None:
        if not access.may("host"):
            lifetimes.check(server.sandboxes, reached.id, data)
        reached.call("extend", data)

    await server.run(change)
    return Done()


def entry_of(server: Server, access: Access, id: str) -> Entry:
    """The registry entry of a sandbox, running or not. Raises NotFound, also when the token may not reach it."""
    known = server.reach.known(id)
    if known is not None and not access.reaches(known.id, known.name):
        raise NotFound("no sandbox {wanted!r}; see `sandbox list`", wanted=id)
    return find(home(), known.id if known is not None else id, lambda one: server.reach.seen_by(access, one))


def described(server: Server, entry: Entry) -> Described:
    """A registry entry as the API shows it."""
    config = entry.config
    plain = entry.plain()
    known = server.reach.known(entry.id)
    return Described(
        id=entry.id,
        name=server.reach.name_of(entry.id) or remembered_name(entry.path),
        status="paused" if known is not None and known.paused else entry.status,  # type: ignore[arg-type]
        engine=known.sandbox.engine if known is not None else str(config.get("engine", "")),
        image=entry.image,
        command=entry.command,
        created_at=plain["created_at"],
        owner="server" if entry.pid == os.getpid() else "process",
        root=str((config.get("filesystem") or {}).get("root", "")),
        mode=str(config.get("mode", "")),
        ports=plain["ports"],
        changes=os.path.isdir(os.path.join(entry.path, "overlay")),
    )


ROUTES = [create, listing, detail, kill, stats, processes, extend]
