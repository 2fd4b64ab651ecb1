"""`process.Process`: commands and terminals in a sandbox.

A command keeps running when the client that started it leaves, and others can join it: it is started with
`spawn(keep=…)`, under a unique name.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Request, post
from litestar.response import Stream

from sandbox.async_process import AsyncProcess
from sandbox.client import Client
from sandbox.rpc import messages as m
from sandbox.server.e2b import connect, messages
from sandbox.server.e2b.connect import Failed
from sandbox.server.e2b.pings import ping_of, pinged
from sandbox.server.e2b.reaching import check_user, opt, resolved, there, user_of
from sandbox.server.e2b.state import MOST_PROCESSES, MOST_STREAMS
from sandbox.server.reach import Reached
from sandbox.server.scopes import Access
from sandbox.server.server import Server

if TYPE_CHECKING:
    from sandbox.protocols import Process
    from sandbox.result import Chunk, ExecResult

KEPT = "e2b-"
SIGNALS: dict[object, int] = {"SIGNAL_SIGTERM": 15, "SIGNAL_SIGKILL": 9, 15: 15, 9: 9}
GONE_AFTER = 2.0  # seconds to wait for a killed command to be gone before the client gets an answer
Asking = Request[Any, Any, Any]
_UNARY: dict[str, Any] = {
    "opt": opt("exec"), "status_code": 200, "include_in_schema": False,
    "exception_handlers": {Exception: connect.answer},
}  # fmt: skip
_STREAM: dict[str, Any] = {**_UNARY, "exception_handlers": {Exception: connect.answer_stream}}


@post("/process.Process/Start", **_STREAM)
async def start(request: Asking, server: Server, access: Access) -> Stream:
    """Starts a command. The answer is its output, as it arrives."""
    asked = await connect.only(request, messages.Start)
    reached = await there(server, access, request)
    check_user(reached, user_of(request))
    limit = connect.deadline(request)
    state = server.e2b.of(reached.id)
    running = await _running(server, reached)
    _forget_ended(state.configs, running)
    state.room(len(running), MOST_PROCESSES, "commands")
    state.room(state.streams, MOST_STREAMS, "streams")
    config, keep = asked.process, _name(asked.tag)
    size = (asked.pty.size.rows, asked.pty.size.cols) if asked.pty is not None else None
    cwd = resolved(server, reached, config.cwd or "")
    env = {"PWD": cwd, **state.envs, **config.envs}

    def spawn() -> Process:
        process = reached.sandbox.spawn(
            [config.cmd, *config.args], cwd=cwd, env=env, timeout=limit, pty=size, keep=keep
        )
        if size is None and not asked.stdin:
            process.close_stdin()
        return process

    process = await server.run(spawn, lambda late: late.close())
    assert process.pid is not None
    state.configs[process.pid] = config
    return connect.streamed(state.counted(_events(server, process, ping_of(request))))


@post("/process.Process/Connect", **_STREAM)
async def join(request: Asking, server: Server, access: Access) -> Stream:
    """The output of a running command, from now on."""
    asked = await connect.only(request, messages.OfProcess)
    reached = await there(server, access, request)
    limit, state = connect.deadline(request), server.e2b.of(reached.id)
    state.room(state.streams, MOST_STREAMS, "streams")
    process = await _joined(server, reached, asked.process)
    return connect.streamed(state.counted(_events(server, process, ping_of(request), limit)))


async def _events(
    server: Server, process: Process, ping: float, limit: float | None = None
) -> AsyncIterator[dict[str, Any]]:
    """The messages of a process's stream. When the client leaves or the time is up, the command keeps running."""
    following = AsyncProcess(process, server.run)
    try:
        yield {"event": {"start": {"pid": process.pid}}}
        async for chunk in pinged(following.chunks(), ping, limit):
            yield {"event": {"keepalive": {}} if chunk is None else {"data": _data(chunk, process.tty)}}
        assert following.result is not None
        yield {"event": {"end": _end(following.result)}}
    finally:
        await asyncio.shield(following.close())


def _data(chunk: Chunk, tty: bool) -> dict[str, bytes]:
    return {"pty" if tty else chunk.stream: chunk.data}


def _end(result: ExecResult) -> dict[str, Any]:
    if result.timed_out:
        raise Failed("deadline_exceeded", "the command did not end in time and was killed")
    if result.signal is not None:
        status = f"signal: {result.signal}"
        return {"exitCode": result.exit_code, "exited": False, "status": status, "error": result.note or status}
    told = {"exitCode": result.exit_code, "exited": True, "status": f"exit status {result.exit_code}"}
    return told if result.exit_code == 0 else {**told, "error": result.note or f"exit status {result.exit_code}"}


# -- running commands


def _name(tag: str | None) -> str:
    """The name that a command is kept under. It cannot be guessed, so nobody joins it by starting another command."""
    return f"{KEPT}{os.urandom(8).hex()}" + (_tag(tag) if tag else "")


def _tag(tag: str) -> str:
    """What the names of commands with that tag end with."""
    return f".{hashlib.sha256(tag.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _forget_ended(configs: dict[int, messages.ProcessConfig], running: list[dict[str, Any]]) -> None:
    for pid in set(configs) - {one["pid"] for one in running}:
        del configs[pid]


async def _running(server: Server, reached: Reached) -> list[dict[str, Any]]:
    found = await server.run(lambda: reached.call("processes", m.Nothing()))
    return [dict(one) for one in found["processes"] if (one["keep"] or "").startswith(KEPT)]


@asynccontextmanager
async def _held(server: Server, reached: Reached, wanted: messages.Selector) -> AsyncIterator[Process]:
    """A view of a running command, for one call. Raises Failed."""
    process = await _joined(server, reached, wanted)
    try:
        yield process
    finally:
        await server.run(process.close)


async def _joined(server: Server, reached: Reached, wanted: messages.Selector) -> Process:
    """A view of a running command, which the caller closes. Raises Failed."""
    tag = None if wanted.tag is None else _tag(wanted.tag)
    found = [
        str(one["keep"])
        for one in await _running(server, reached)
        if one["pid"] == wanted.pid or (tag is not None and one["keep"].endswith(tag))
    ]
    if not found:
        raise Failed("not_found", f"process with pid {wanted.pid} not found")
    sandbox = reached.sandbox
    connect = sandbox.connect if isinstance(sandbox, Client) else sandbox._join
    return await server.run(lambda: connect(found[0]), lambda late: late.close())


@post("/process.Process/List", **_UNARY)
async def listing(request: Asking, server: Server, access: Access) -> dict[str, Any]:
    """The running commands."""
    await connect.read(request, messages.Nothing)
    reached = await there(server, access, request)
    configs = server.e2b.of(reached.id).configs
    found = await _running(server, reached)
    _forget_ended(configs, found)
    told = []
    for one in found:
        config = configs.get(one["pid"]) or messages.ProcessConfig(cmd=one["command"])
        told.append({"pid": one["pid"], "config": msgspec.to_builtins(config)})
    return {"processes": told}


# -- talking to one


@post("/process.Process/SendInput", **_UNARY)
async def send_input(request: Asking, server: Server, access: Access) -> dict[str, Any]:
    """Sends input to a command."""
    asked = await connect.read(request, messages.SendInput)
    async with _held(server, await there(server, access, request), asked.process) as process:
        await _write(server, process, asked.input)
    return {}


@post("/process.Process/StreamInput", **{**_STREAM, "request_max_body_size": None})
async def stream_input(request: Asking, server: Server, access: Access) -> Stream:
    """Sends input to a command, piece by piece and in order."""
    reached = await there(server, access, request)
    pieces = connect.envelopes(request, messages.StreamedInput)
    first = await anext(pieces, None)
    if first is None or first.start is None:
        raise Failed("invalid_argument", "a stream of input begins with its start")
    async with _held(server, reached, first.start.process) as process:
        async for piece in pieces:
            if piece.start is not None:
                raise Failed("invalid_argument", "a stream of input has one start")
            if piece.data is not None:
                await _write(server, process, piece.data.input)
    return connect.streamed(_nothing())


async def _nothing() -> AsyncIterator[dict[str, Any]]:
    yield {}


async def _write(server: Server, process: Process, given: messages.Input) -> None:
    if given.data and (given.pty is not None) != process.tty:
        raise Failed("invalid_argument", "a terminal takes `pty`, any other command `stdin`")
    try:
        await server.run(lambda: process.write(given.data))
    except (BrokenPipeError, ValueError):
        raise Failed("failed_precondition", "the command reads no more input") from None


@post("/process.Process/CloseStdin", **_UNARY)
async def close_stdin(request: Asking, server: Server, access: Access) -> dict[str, Any]:
    """Ends a command's input."""
    asked = await connect.read(request, messages.OfProcess)
    async with _held(server, await there(server, access, request), asked.process) as process:
        if process.tty:
            raise Failed("failed_precondition", "on a terminal, send Ctrl-D")
        await server.run(process.close_stdin)
    return {}


@post("/process.Process/SendSignal", **_UNARY)
async def send_signal(request: Asking, server: Server, access: Access) -> dict[str, Any]:
    """Sends SIGTERM or SIGKILL to a command."""
    asked = await connect.read(request, messages.SendSignal)
    number = SIGNALS[asked.signal]
    async with _held(server, await there(server, access, request), asked.process) as process:
        await server.run((lambda: _kill(process)) if number == 9 else lambda: process.signal(number))
    return {}


def _kill(process: Process) -> None:
    """Kills it, and waits up to GONE_AFTER seconds until it is gone."""
    process.kill()
    try:
        process.wait(GONE_AFTER)
    except TimeoutError:
        pass


@post("/process.Process/Update", **_UNARY)
async def update(request: Asking, server: Server, access: Access) -> dict[str, Any]:
    """Sets the size of a terminal."""
    asked = await connect.read(request, messages.Update)
    async with _held(server, await there(server, access, request), asked.process) as process:
        if asked.pty is not None:
            size = asked.pty.size
            await server.run(lambda: process.resize(size.rows, size.cols))
    return {}


ROUTES = [start, join, listing, send_input, stream_input, close_stdin, send_signal, update]
