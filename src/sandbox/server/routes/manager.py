"""`/api/sandbox/…`: the specification's paths. They are about the managed sandbox called `default`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from litestar import get, post
from msgspec import Meta, Struct

from sandbox.errors import CommandError
from sandbox.manager.manager import Happened, SandboxManager
from sandbox.server.guard import manager_of, require
from sandbox.server.refusal import Refusal
from sandbox.server.scopes import Access, needed
from sandbox.server.server import Server


class Status(Struct):
    """The state of a managed sandbox."""

    state: Annotated[str, Meta(examples=["ready"])]
    mode: str
    containerId: str | None
    browserContainerId: str | None
    engine: str
    health: dict[str, Any]


class Events(Struct):
    """The last 100 steps of its life, the oldest first."""

    events: list[Happened]


class Exec(Struct, forbid_unknown_fields=True):
    """A command for the shell."""

    command: Annotated[str, Meta(min_length=1, max_length=100_000, examples=["python --version"])]
    workdir: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    timeoutMs: Annotated[int, Meta(ge=1, le=86_400_000)] = 30_000


class Ended(Struct, omit_defaults=True):
    """Any exit code is an answer, not an error. `executedInSandbox` is false in mode `off`. `timedOut` and `truncated`
    (the output was too long) are there only when they are true."""

    exitCode: int
    stdout: str
    stderr: str
    durationMs: int
    executedInSandbox: bool
    timedOut: bool = False
    truncated: bool = False


class Capability(Struct):
    """Whether it is available, and which program provides it."""

    available: bool
    tool: str | None


class Reason(Struct, forbid_unknown_fields=True):
    """Why, for the record."""

    reason: Annotated[str, Meta(max_length=1000)] = ""


@get("/api/sandbox/status", opt={"verb": "read"})
async def status(server: Server, access: Access) -> Status:
    """State, mode and health."""
    return status_of(manager_of(server, access))


def status_of(manager: SandboxManager) -> Status:
    return Status(**manager.status())


@get("/api/sandbox/events", opt={"verb": "read"})
async def events(server: Server, access: Access) -> Events:
    """The last 100 steps."""
    return Events(manager_of(server, access).events())


@get("/api/sandbox/platform", opt={"verb": "read"})
async def platform(server: Server) -> dict[str, Any]:
    """Which engines this machine has. Each is tried, so the first answer takes a second or more."""
    return await server.run(lambda: _platform().platform())


def _platform() -> Any:
    try:
        from sandbox.engines import platform  # type: ignore[attr-defined,unused-ignore]
    except ImportError:
        raise Refusal(501, "not_implemented", "this release has no container engines") from None
    return platform


@post("/api/sandbox/start", opt={"verb": "kill"}, status_code=200)
async def start(server: Server, access: Access) -> Status:
    """Starts the sandbox; answers when it is ready."""
    return await _do(server, access, "start")


@post("/api/sandbox/stop", opt={"verb": "kill"}, status_code=200)
async def stop(server: Server, access: Access) -> Status:
    """Ends the sandbox; answers when it has ended."""
    return await _do(server, access, "stop")


@post("/api/sandbox/recover", opt={"verb": "kill"}, status_code=200)
async def recover(server: Server, access: Access) -> Status:
    """Starts a degraded or stopped sandbox again, with its workspace."""
    return await _do(server, access, "recover")


async def _do(server: Server, access: Access, step: str) -> Status:
    manager = manager_of(server, access)
    await (server.end if step == "stop" else server.run)(getattr(manager, step))
    return status_of(manager)


@post("/api/sandbox/exec", opt={"verb": "exec"}, status_code=200)
async def exec(server: Server, access: Access, data: Exec) -> Ended:
    """Runs a command to its end, or to its timeout."""
    return await run_in(server, access, manager_of(server, access), data)


async def run_in(server: Server, access: Access, manager: SandboxManager, asked: Exec) -> Ended:
    """Runs a command. Where there are no walls (mode `off`) it runs on the host, which needs scope `host`."""
    sandbox = manager._usable("exec")  # this one and no other: a change of the mode may replace it meanwhile
    walled = sandbox._can.walls
    require(access, needed("exec", walled=walled))
    timeout = asked.timeoutMs / 1000
    try:
        run = partial(manager._exec_in, sandbox, asked.command, workdir=asked.workdir, timeout=timeout)
        result = await server.run(run)
    except CommandError as wrong:
        wrong.argument = "workdir" if wrong.argument == "cwd" else wrong.argument  # as this path's own field is called
        raise
    return Ended(
        result.exit_code, result.stdout, result.stderr, result.duration_ms, walled, result.timed_out, result.truncated
    )


@post("/api/sandbox/docker/start", opt={"verb": "host"}, status_code=200)
async def start_docker(server: Server) -> dict[str, Any]:
    """Starts the host's Docker, if it is installed."""
    command = await server.run(lambda: _platform().start_docker())
    return {"started": bool(command), "command": command}


@post("/api/sandbox/kill", opt={"verb": "panic"}, status_code=200)
async def kill(server: Server, access: Access, data: Reason | None = None) -> dict[str, Any]:
    """The kill switch: ends every sandbox of this user at once, voids the secrets' placeholders, lets none start."""
    reason = data.reason if data is not None else ""
    ended = await server.end(lambda: server.panic(f"HTTP ({access.name})", reason))
    return {"ended": ended, "pulled": True}


@get("/api/sandbox/kill", opt={"verb": "read"})
async def switch(server: Server) -> dict[str, Any]:
    """Whether the kill switch is pulled, by whom and why."""
    from sandbox.config.home import home
    from sandbox.registry.kill_switch import state

    told = await server.run(lambda: state(home()))
    return {"pulled": told is not None, **(told or {})}


@post("/api/sandbox/kill/release", opt={"verb": "host"}, status_code=200)
async def release(server: Server, access: Access) -> dict[str, Any]:
    """Lets sandboxes start again."""
    from sandbox.service import release_kill_switch

    if not await server.run(lambda: release_kill_switch(by=f"HTTP ({access.name})")):
        raise Refusal(409, "wrong_state", "the kill switch is not pulled")
    return {"pulled": False}


ROUTES = [
    status, events, platform, start, stop, recover, exec, start_docker, kill, switch, release,
]  # fmt: skip
