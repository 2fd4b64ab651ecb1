"""`/v1/managers`: managed sandboxes by name, with the same steps as the specification's paths."""

from __future__ import annotations

from typing import Any, Literal

from litestar import get, post, put
from msgspec import Struct

from sandbox.config.model import MODES
from sandbox.server.guard import manager_of, require
from sandbox.server.routes.manager import Ended, Events, Exec, Status, run_in, status_of
from sandbox.server.scopes import Access
from sandbox.server.server import Server
from sandbox.server.shapes import NameInPath


class Managed(Struct):
    """Every managed sandbox, by name."""

    managers: dict[str, Status]


class Mode(Struct, forbid_unknown_fields=True):
    """The mode to change to. A weaker mode needs scope `host`."""

    mode: Literal["off", "light", "standard", "max"]


@get("/v1/managers", opt={"verb": "read"})
async def listing(server: Server, access: Access) -> Managed:
    """Every managed sandbox of this server."""
    return Managed({one.name: status_of(one) for one in server.managers.all() if access.reaches(one.name)})


@put("/v1/managers/{name:str}", opt={"verb": "host"})
async def define(server: Server, name: NameInPath, data: dict[str, Any]) -> Status:
    """Defines a managed sandbox by a SandboxManagerConfig, without starting it."""
    return status_of(await server.run(lambda: server.managers.add(name, data)))


@get("/v1/managers/{name:str}", opt={"verb": "read"})
async def status(server: Server, access: Access, name: NameInPath) -> Status:
    """State, mode and health of one."""
    return status_of(manager_of(server, access, name))


@get("/v1/managers/{name:str}/events", opt={"verb": "read"})
async def events(server: Server, access: Access, name: NameInPath) -> Events:
    """Its last 100 steps."""
    return Events(manager_of(server, access, name).events())


@post("/v1/managers/{name:str}/start", opt={"verb": "kill"}, status_code=200)
async def start(server: Server, access: Access, name: NameInPath) -> Status:
    """Starts it; answers when it is ready."""
    manager = manager_of(server, access, name)
    await server.run(manager.start)
    return status_of(manager)


@post("/v1/managers/{name:str}/stop", opt={"verb": "kill"}, status_code=200)
async def stop(server: Server, access: Access, name: NameInPath) -> Status:
    """Ends it; answers when it has ended."""
    manager = manager_of(server, access, name)
    await server.end(manager.stop)
    return status_of(manager)


@post("/v1/managers/{name:str}/recover", opt={"verb": "kill"}, status_code=200)
async def recover(server: Server, access: Access, name: NameInPath) -> Status:
    """Starts it again, with its workspace."""
    manager = manager_of(server, access, name)
    await server.run(manager.recover)
    return status_of(manager)


@post("/v1/managers/{name:str}/mode", opt={"verb": "kill"}, status_code=200)
async def mode(server: Server, access: Access, name: NameInPath, data: Mode) -> Status:
    """Changes the mode and records that; a running sandbox is restarted."""
    manager = manager_of(server, access, name)
    if MODES.index(data.mode) < MODES.index(manager.config.mode):
        require(access, "host")
    await server.run(lambda: manager.change_mode(data.mode))
    return status_of(manager)


@post("/v1/managers/{name:str}/exec", opt={"verb": "exec"}, status_code=200)
async def exec(server: Server, access: Access, name: NameInPath, data: Exec) -> Ended:
    """Runs a command in it."""
    return await run_in(server, access, manager_of(server, access, name), data)


ROUTES = [listing, define, status, events, start, stop, recover, mode, exec]
