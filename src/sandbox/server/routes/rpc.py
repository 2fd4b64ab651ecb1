"""The whole JSON-RPC protocol over a WebSocket, for clients in any language: binary frames carry its lines.

A frame is any part of the stream of lines, so no WebSocket message needs to be as large as the largest line.
"""

from __future__ import annotations

import asyncio
import socket as sockets
from collections.abc import Mapping
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

from litestar import WebSocket, websocket

from sandbox.checkpoint_methods import FORKS_MOST
from sandbox.client import Client
from sandbox.config.home import home
from sandbox.registry.registry import find
from sandbox.rpc import errors
from sandbox.rpc import messages as m
from sandbox.rpc.current_sandbox import CurrentSandbox
from sandbox.rpc.errors import Fault
from sandbox.rpc.session import RpcSession
from sandbox.server import lifetimes
from sandbox.server.guard import require
from sandbox.server.reach import Reached
from sandbox.server.routes.sandboxes import start
from sandbox.server.scopes import LEASE, Access, needed
from sandbox.server.server import Server
from sandbox.sockets import connect_in

if TYPE_CHECKING:
    from sandbox.sandbox import Sandbox

PIECE = 2**16


class LineStream(Protocol):
    """A connection that is no plain socket, such as one with TLS."""

    def fileno(self) -> int: ...
    def receive(self, wake: int | None = None) -> bytes: ...
    def send(self, data: memoryview) -> int: ...
    def shutdown(self, how: int, /) -> None: ...


# The verb that each method needs. A method that is not listed needs `host`, so a new one is closed by default.
VERBS = {
    **dict.fromkeys(("create", "checkpoint", "fork"), "create"),
    **dict.fromkeys(("info", "policy", "ports", "stats", "processes", "asks"), "read"),
    **dict.fromkeys(
        ("exec", "exec_stream", "exec_pipe", "exec_tty", "connect", "dial", "view", "input", "more", "resize", "signal",
         "cancel", "desktop", "browser"), "exec"),
    **dict.fromkeys(
        ("read_file", "write_file", "list_files", "stat", "mkdir", "remove", "rename", "chmod", "symlink",
         "read_link", "changes"), "files"),
    **dict.fromkeys(("apply", "discard"), "apply"),
    **dict.fromkeys(("update_network", "tighten_network"), "network"),
    "answer": "answer",
    **dict.fromkeys(("extend", "close", "pause", "resume"), "kill"),
}  # fmt: skip


@websocket("/v1/rpc", opt={"verb": "create", "surface": LEASE})
async def creating(socket: WebSocket[Any, Any, Any], server: Server, access: Access) -> None:
    """JSON-RPC for a new sandbox, which `create` makes and which ends with the connection."""
    await socket.accept()
    # `_Creator` makes no other for this token.
    await _serve(socket, server, access, creator(server, access), ends=True, walled=True)


@websocket("/v1/sandboxes/{id:str}/rpc", opt={"verb": "read", "surface": LEASE})
async def attached(socket: WebSocket[Any, Any, Any], server: Server, access: Access, reached: Reached) -> None:
    """JSON-RPC for a running sandbox. If another process owns it, scope `host` is needed."""
    if not isinstance(reached.sandbox, Client):
        await socket.accept()
        current = CurrentSandbox(reached.sandbox)
        await _serve(socket, server, access, current, ends=False, walled=reached.walled)
        return
    require(access, "host")  # the process that owns it answers, and knows nothing about scopes
    line = await server.run(lambda: _connected(reached.id), lambda one: one.close())
    await socket.accept()
    await _relay(socket, line)


def _connected(id: str) -> sockets.socket:
    line = sockets.socket(sockets.AF_UNIX)
    try:
        connect_in(line, find(home(), id).path, "socket")
    except BaseException:
        line.close()
        raise
    return line


def creator(server: Server, access: Access) -> CurrentSandbox:
    """A sandbox that the client is about to create."""
    return CurrentSandbox(sandboxes=_Creator(server, access))  # type: ignore[arg-type]


class _Creator:
    """`create` and `restore` for a client, within what its token allows."""

    def __init__(self, server: Server, access: Access) -> None:
        self._server, self._access = server, access

    def create(self, asked: Mapping[str, Any], *, hooks: object | None = None) -> Sandbox:
        if hooks is not None and not self._access.may("host"):
            raise Fault(errors.DENIED, "hooks need the scope {scope!r}", scope="host")
        return self._reachable(start(self._server, self._access, dict(asked), "", hooks))

    def restore(self, name: str, config: Mapping[str, Any], *, hooks: object | None = None) -> Sandbox:
        if not self._access.may("host"):  # it may do whatever the saved sandbox was allowed to
            raise Fault(errors.DENIED, "this token has no scope {scope!r}", scope="host", data=_denied("host"))
        with self._server.leasing(self._access) as made, self._server.places.hold():
            made.append(self._server.sandboxes.restore(name, config, hooks=hooks))
            return self._reachable(made[0])

    def _reachable(self, sandbox: Sandbox) -> Sandbox:
        if not self._server.reach.add(sandbox).walled and not self._access.may("host"):
            sandbox.close()
            raise Fault(errors.DENIED, "this token has no scope {scope!r}", scope="host", data=_denied("host"))
        return sandbox


async def _serve(
    socket: WebSocket[Any, Any, Any],
    server: Server,
    access: Access,
    current: CurrentSandbox,
    *,
    ends: bool,
    walled: bool,
) -> None:
    """Serves a session in this process, at the other end of a socket pair."""
    ours, theirs = sockets.socketpair()

    def serve() -> None:
        with theirs:
            run_session(server, access, current, theirs, ends=ends, walled=walled)

    Thread(target=serve, name="sandbox-rpc", daemon=True).start()
    await _relay(socket, ours)


def run_session(
    server: Server,
    access: Access,
    current: CurrentSandbox,
    line: sockets.socket | LineStream,
    *,
    ends: bool,
    walled: bool,
) -> None:
    """Serves a session until the other side ends it.

    `ends`: the sandbox ends with it. `walled`: whether it has walls; without them, using it is using the host.
    """
    check, descriptor = _check(server, access, current, walled), line.fileno()
    if isinstance(line, sockets.socket):
        session = RpcSession(descriptor, descriptor, current, check=check)
    else:
        session = RpcSession(line.receive, line.send, current, check=check, descriptor=descriptor)
    unsubscribe = None if ends else current.sandbox().on_event(session.events.put)
    try:
        session.run()
    finally:
        if unsubscribe is not None:
            unsubscribe()
        if ends:
            current.close()
        try:
            line.shutdown(sockets.SHUT_RDWR)
        except OSError:
            pass
        session.writer.close()


def _check(server: Server, access: Access, current: CurrentSandbox, walled: bool) -> Any:
    def check(method: str, asked: Any) -> Any:
        verb = needed(VERBS.get(method, "host"), walled=walled)
        if not access.may(verb):
            raise Fault(errors.DENIED, "this token has no scope {scope!r}", scope=verb, data=_denied(verb))
        if method == "answer" and asked.answer == "always" and not access.may("host"):
            raise Fault(errors.DENIED, "this token has no scope {scope!r}", scope="host", data=_denied("host"))
        if method == "update_network" and not access.may("host"):
            return m.OnlyTighter(asked)
        if method == "fork":
            return m.PlacedFork(asked.n, lambda n: _forks(server, current.sandbox(), n))
        if method == "extend" and not access.may("host"):
            lifetimes.check(server.sandboxes, current.sandbox().id, asked)
        return asked

    return check


def _forks(server: Server, sandbox: Sandbox, n: int) -> list[str]:
    """The ids of `n` forks, for which there must be room on the server. They end with their origin."""
    if not 0 < n <= FORKS_MOST:
        raise Fault(errors.INVALID_PARAMS, "n must be a number from 1 to {most}", most=FORKS_MOST)
    with server.places.hold(n):
        ids = sandbox._keep_forks(n)
        for one in [one for one in sandbox._forks if one.id in ids]:
            server.sandboxes.adopt(one)
            server.reach.add(one)
    return ids


def _denied(verb: str) -> dict[str, str]:
    return {"rule": "token-scope", "reason": f"this token has no scope {verb!r}"}


async def _relay(socket: WebSocket[Any, Any, Any], line: sockets.socket) -> None:
    """Relays bytes both ways until either side ends."""
    line.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=line)

    async def inwards() -> None:
        while True:
            message: Any = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            data = message.get("bytes")
            writer.write(data if data is not None else message.get("text", "").encode())
            await writer.drain()

    async def outwards() -> None:
        while data := await reader.read(PIECE):
            await socket.send_data(data, mode="binary")
        await socket.close()

    tasks = [asyncio.ensure_future(inwards()), asyncio.ensure_future(outwards())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()


ROUTES = [creating, attached]
