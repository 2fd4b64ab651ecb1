"""The control plane: create, list, inspect, extend, pause and end sandboxes, as in E2B's API."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, post, put, route
from litestar.enums import HttpMethod
from msgspec import UNSET, Meta, Struct, UnsetType

from sandbox.config.home import home
from sandbox.errors import NotFound, SandboxError
from sandbox.registry.registry import Entry, entries, find
from sandbox.server.decoding import decode
from sandbox.server.e2b import endings, shapes
from sandbox.server.e2b.endings import TIMEOUT
from sandbox.server.e2b.hosts import whole_id
from sandbox.server.e2b.listing import Filter, page
from sandbox.server.e2b.messages import Variables
from sandbox.server.e2b.reaching import HOME, home_of
from sandbox.server.e2b.refusals import E2bRefusal, answer, not_supported
from sandbox.server.e2b.state import SandboxState, now
from sandbox.server.guard import require
from sandbox.server.reach import Reached
from sandbox.server.routes.sandboxes import entry_of, start
from sandbox.server.routes.sandboxes import kill as end_sandbox
from sandbox.server.scopes import Access
from sandbox.server.server import Server

TEMPLATES = ("base", "code-interpreter-v1")
ANYWHERE = ("0.0.0.0/0", "::/0")
Asking = Request[Any, Any, Any]
Seconds = Annotated[int, Meta(ge=0, le=10**9)]


def plain(verb: str) -> dict[str, Any]:
    """Options that the routes of the control plane share. They do not accept a sandbox's access token."""
    return {"opt": {"verb": verb}, "include_in_schema": False, "exception_handlers": {Exception: answer}}


class Network(Struct, rename="camel"):
    allow_out: Annotated[list[Annotated[str, Meta(max_length=300)]], Meta(max_length=1000)] | None = None
    deny_out: Annotated[list[Annotated[str, Meta(max_length=300)]], Meta(max_length=1000)] | None = None
    allow_public_traffic: bool | None = None
    mask_request_host: Any = None
    egress_proxy: Any = None
    rules: Any = None
    allow_internet_access: bool | None = msgspec.field(default=None, name="allow_internet_access")


class AutoResume(Struct):
    enabled: bool = False


class NewSandbox(Struct):
    template: Annotated[str, Meta(max_length=300)] = msgspec.field(name="templateID")
    timeout: Seconds = TIMEOUT
    metadata: Variables | None = None
    envs: Variables | None = msgspec.field(default=None, name="envVars")
    allow_internet_access: bool | None = None
    network: Network | None = None
    auto_pause: bool | None = msgspec.field(default=None, name="autoPause")
    auto_pause_memory: bool | None = msgspec.field(default=None, name="autoPauseMemory")
    auto_resume: AutoResume | None = msgspec.field(default=None, name="autoResume")
    mcp: Any = None
    iam: Any = None
    volumes: list[Any] | None = msgspec.field(default=None, name="volumeMounts")


class Timeout(Struct):
    timeout: Seconds | UnsetType = UNSET


async def read(request: Asking, type: type[msgspec.Struct]) -> Any:
    """The body of a request. No body counts as an empty object."""
    return decode(await request.body() or b"{}", type=type)


# -- creating


@post(["/sandboxes", "/v2/sandboxes"], status_code=201, **plain("create"))
async def create(request: Asking, server: Server, access: Access) -> dict[str, Any]:
    """Creates a sandbox, within what the server's owner allows."""
    asked: NewSandbox = await read(request, NewSandbox)
    config = _config(asked)
    if asked.template in TEMPLATES:
        reached = await server.run(lambda: server.reach.add(start(server, access, config, "")))
    else:
        require(access, "host")  # as for any restore: it may do whatever the saved sandbox was allowed to
        reached = await _restored(server, asked.template, asked.timeout)
    state = SandboxState(template=asked.template, ends=now() + asked.timeout)
    state.started = now()
    state.metadata, state.envs = dict(asked.metadata or {}), dict(asked.envs or {})
    state.internet = asked.allow_internet_access
    await _sweep(server)
    server.e2b.add(reached.id, state)
    if asked.auto_pause:
        state.wakes = asked.auto_resume is not None and asked.auto_resume.enabled
        await endings.begin_to_pause(server, access, reached, state, asked.timeout)
    state.home = await server.run(lambda: home_of(reached))
    return shapes.opened(server, access, request, reached.id, state)


async def _sweep(server: Server) -> None:
    """Drops what E2B's clients made in sandboxes that have ended, however they ended."""
    server.reach.forget_ended()
    server.e2b.forget_all_but(server.reach.living())
    await server.run(server.e2b.clear)


async def _restored(server: Server, name: str, timeout: int) -> Reached:
    """Starts a sandbox from a snapshot."""
    try:
        return await server.run(lambda: _restore(server, name, {"limits": {"lifetime": max(1, timeout)}}))
    except NotFound:
        raise E2bRefusal(404, f"template {name!r} not found: there are {', '.join(TEMPLATES)}, and snapshots") from None


def _restore(server: Server, name: str, config: dict[str, Any]) -> Reached:
    with server.places.hold():
        return server.reach.add(server.sandboxes.restore(name, config))


def _config(asked: NewSandbox) -> dict[str, Any]:
    """The request as our configuration. Raises E2bRefusal for what is not supported here."""
    for name, wanted in (("mcp", asked.mcp), ("iam", asked.iam), ("volumeMounts", asked.volumes)):
        if wanted:
            raise not_supported(name)
    if asked.auto_pause and asked.auto_pause_memory is False:
        raise not_supported("a pause that keeps files alone")
    # An overlay, so that forks and snapshots get a copy of the workspace and do not share it.
    files = {"also_at": HOME, "overlay": True}
    config: dict[str, Any] = {"limits": {"lifetime": max(1, asked.timeout)}, "filesystem": files}
    hosts = hosts_of(asked.network or Network(), asked.allow_internet_access)
    return config if hosts is None else {**config, "network": {"allowed_hosts": hosts}}


def hosts_of(network: Network, internet: bool | None) -> list[str] | None:
    """The hosts that may be reached; None means whatever the owner allows. Raises E2bRefusal."""
    for name in ("mask_request_host", "egress_proxy", "rules"):
        if getattr(network, name):
            raise not_supported(f"network.{name}")
    if network.allow_public_traffic:
        raise not_supported("network.allow_public_traffic: every request needs a token")
    denied = [one for one in network.deny_out or [] if one not in ANYWHERE]
    if denied:
        raise not_supported("network.deny_out of less than everything")
    if network.allow_out:
        return list(network.allow_out)
    return [] if internet is False or network.deny_out else None


# -- listing and ending


@get("/v2/sandboxes", **plain("read"))
async def listing(request: Asking, server: Server, access: Access) -> Response[list[dict[str, Any]]]:
    """The running and paused sandboxes that the token reaches, including those of other programs."""
    wanted = Filter.read(request.query_params)
    found = [shapes.listed(server, one) for one in await _entries(server, access)]
    shown, following = page([one for one in found if wanted.has(one)], wanted)
    return Response(shown, headers={"x-next-token": following} if following else {})


@get("/sandboxes", **plain("read"))
async def listing_running(request: Asking, server: Server, access: Access) -> list[dict[str, Any]]:
    """The running sandboxes, for older clients."""
    wanted = Filter.read({**request.query_params, "state": "running"})
    found = [shapes.listed(server, one) for one in await _entries(server, access)]
    return [one for one in found if wanted.has(one)]


async def _entries(server: Server, access: Access) -> list[Entry]:
    await _sweep(server)
    found = await server.run(lambda: entries(home()))
    return [
        one
        for one in found
        if one.running and not server.reach.held(one.id) and access.reaches(one.id, server.reach.name_of(one.id))
    ]


async def reached_of(server: Server, access: Access, id: str) -> Reached:
    """The running or paused sandbox with exactly that id. Raises E2bRefusal."""
    try:
        if whole_id(id):
            reached = await server.run(lambda: server.reach.get(id, access))
            if reached.id == id:
                return reached
    except SandboxError:
        pass
    raise E2bRefusal(404, f"sandbox {id[:64]!r} not found")


@get("/sandboxes/{id:str}", **plain("read"))
async def detail(request: Asking, server: Server, access: Access, id: str) -> dict[str, Any]:
    """One sandbox."""
    reached = await reached_of(server, access, id)
    entry = await server.run(lambda: find(home(), reached.id))
    return shapes.detailed(server, access, request, entry)


@delete("/sandboxes/{id:str}", status_code=204, **plain("kill"))
async def kill(server: Server, access: Access, id: str) -> None:
    """Ends a sandbox."""
    await reached_of(server, access, id)
    await end_sandbox.fn(server=server, access=access, id=id)
    await _sweep(server)


@get("/sandboxes/{id:str}/metrics", **plain("read"))
async def metrics(request: Asking, server: Server, access: Access, id: str) -> list[dict[str, Any]]:
    """The resources that the sandbox uses now; empty when only another time was asked for."""
    reached = await reached_of(server, access, id)
    entry = await server.run(lambda: entry_of(server, access, reached.id))
    moment = now()
    bounds = [request.query_params.get(name, "") for name in ("start", "end")]
    if any(text and not (text.isdecimal() and len(text) < 12) for text in bounds):
        raise E2bRefusal(400, "start and end are seconds since 1970")
    if moment < int(bounds[0] or 0) or moment > int(bounds[1] or 10**12) + 5:
        return []
    stats = await server.run(lambda: dict(reached.sandbox.stats()))
    return [shapes.measured(server.e2b.of(id), entry, stats, moment)]


# -- how long they live


@post("/sandboxes/{id:str}/timeout", status_code=204, **plain("kill"))
async def set_timeout(request: Asking, server: Server, access: Access, id: str) -> None:
    """Sets how many seconds from now the sandbox ends."""
    asked: Timeout = await read(request, Timeout)
    reached = await reached_of(server, access, id)
    await endings.extend(server, access, reached, TIMEOUT if asked.timeout is UNSET else asked.timeout)


@post(["/sandboxes/{id:str}/connect", "/v2/sandboxes/{id:str}/connect"], status_code=200, **plain("read"))
async def connect(request: Asking, server: Server, access: Access, id: str) -> Response[dict[str, Any]]:
    """What a client needs to use a sandbox. Resumes a paused one; never makes a running one end earlier."""
    asked: Timeout = await read(request, Timeout)
    reached = await reached_of(server, access, id)
    state = server.e2b.of(id)
    paused = reached.paused
    if paused:
        require(access, "kill")
        await server.run(reached.sandbox.resume)
    wanted = TIMEOUT if asked.timeout is UNSET and paused else asked.timeout
    if wanted is not UNSET and (paused or (state.ends is not None and now() + wanted > state.ends)):
        require(access, "kill")
        await endings.extend(server, access, reached, wanted)
    told = shapes.opened(server, access, request, id, state)
    return Response(told, status_code=201 if paused else 200)


@post("/sandboxes/{id:str}/resume", status_code=201, **plain("kill"))
async def resume(request: Asking, server: Server, access: Access, id: str) -> dict[str, Any]:
    """Resumes a paused sandbox."""
    asked: Timeout = await read(request, Timeout)
    reached = await reached_of(server, access, id)
    if not reached.paused:
        raise E2bRefusal(409, f"sandbox {id} is not paused")
    await server.run(reached.sandbox.resume)
    await endings.extend(server, access, reached, TIMEOUT if asked.timeout is UNSET else asked.timeout)
    return shapes.opened(server, access, request, id, server.e2b.of(id))


@post("/sandboxes/{id:str}/pause", status_code=204, **plain("kill"))
async def pause(request: Asking, server: Server, access: Access, id: str) -> None:
    """Freezes everything inside. It stays in memory, without a time limit unless the owner set one."""
    asked = decode(await request.body() or b"{}", type=dict[str, Any])
    if asked.get("memory") is False:
        raise not_supported("a pause that keeps files alone")
    reached = await reached_of(server, access, id)
    if reached.paused:
        raise E2bRefusal(409, f"sandbox {id} is paused already")
    await endings.pause(server, access, reached)


@put("/sandboxes/{id:str}/network", status_code=204, **plain("network"))
async def network(request: Asking, server: Server, access: Access, id: str) -> None:
    """Changes which hosts may be reached. Without scope `host`, only to fewer."""
    asked: Network = await read(request, Network)
    reached = await reached_of(server, access, id)
    hosts = hosts_of(asked, asked.allow_internet_access)
    if hosts is None:
        raise not_supported("going back to the owner's policy")
    method = "update_network" if access.may("host") else "tighten_network"
    await server.run(lambda: reached.call(method, {"allowed_hosts": hosts}))


# -- what is not supported


EVERY = [HttpMethod.GET, HttpMethod.POST, HttpMethod.PUT, HttpMethod.PATCH, HttpMethod.DELETE]


@route(
    ["/templates", "/v2/templates", "/v3/templates", "/templates/aliases/{name:str}", "/v2/templates/{name:str}",
     "/volumes", "/volumes/{name:str}", "/secrets", "/secrets/{name:str}", "/sandboxes/{id:str}/logs",
     "/v2/sandboxes/{id:str}/logs"],
    http_method=EVERY,
    **plain("read"),
)  # fmt: skip
async def missing(request: Asking) -> None:
    """Templates, volumes, secrets and logs of E2B's cloud, which do not exist here."""
    raise E2bRefusal(501, "this part of E2B's API is not supported by this server; see docs/integrations/e2b.md")


ROUTES = [
    create, listing, listing_running, detail, kill, metrics, set_timeout, connect, resume, pause, network, missing,
]  # fmt: skip
