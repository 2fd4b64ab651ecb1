"""Starts commands for requests, and describes their output and end."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from sandbox.async_process import AsyncProcess
from sandbox.rpc.commands import ended
from sandbox.rpc.remote import RemoteProcess

if TYPE_CHECKING:
    from sandbox.protocols import Process
    from sandbox.result import Chunk, ExecResult
    from sandbox.server.reach import Reached
    from sandbox.server.server import Server
    from sandbox.server.shapes import Exec, Start

SHELL = "exec ${SHELL:-/bin/sh}"


async def begin(server: Server, reached: Reached, asked: Exec) -> AsyncProcess:
    """Starts a command whose whole input is known. Raises CommandError when it cannot start."""
    return AsyncProcess(await server.run(lambda: _begin(reached, asked), _give_up), server.run)


def _begin(reached: Reached, asked: Exec) -> Process:
    sandbox = reached.sandbox
    process = sandbox._begin(asked.command, asked.cwd, env=asked.env, input=asked.input, timeout=asked.timeout)
    if isinstance(process, RemoteProcess):
        return process
    try:
        process.wait_started()
    except BaseException:
        process.close()
        raise
    return process


async def open_process(server: Server, reached: Reached, asked: Start, *, tty: bool) -> tuple[Process, AsyncProcess]:
    """Starts an interactive command. Raises CommandError when it cannot start."""
    command = asked.command if asked.command is not None else SHELL
    size = (asked.rows, asked.cols) if tty else None

    def spawn() -> Process:
        return reached.sandbox.spawn(
            command, cwd=asked.cwd, env=asked.env, timeout=asked.timeout, pty=size, keep=asked.keep
        )

    process = await server.run(spawn, _give_up)
    return process, AsyncProcess(process, server.run)


def _give_up(process: Process) -> None:
    process.close()


def said(chunk: Chunk) -> dict[str, Any]:
    """A piece of output: as text if it is UTF-8, else as base64."""
    try:
        return {"text": chunk.data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(chunk.data).decode()}


def outcome(result: ExecResult) -> dict[str, Any]:
    """How the command ended, without its output."""
    return ended(result)
