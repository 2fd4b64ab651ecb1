"""Looking at a sandbox's screen (VNC) and driving its browser, behind this server's tokens.

The screen's bytes go from a Unix socket inside to the caller's WebSocket, and noVNC draws them. What the caller sends
is checked here message by message: a viewer has no mouse or keyboard, and no clipboard is passed in.
"""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import Request, WebSocket, get, websocket
from litestar.exceptions import WebSocketDisconnect
from msgspec import Struct

from sandbox.desktop.desktop import MOST_PIXELS
from sandbox.desktop.rfb import Filter, Introduction
from sandbox.errors import SandboxClosed, SandboxError
from sandbox.server.guard import manager_of
from sandbox.server.reach import Reached
from sandbox.server.refusal import Refusal
from sandbox.server.scopes import Access
from sandbox.server.server import Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket as sockets

    from sandbox.sandbox import Sandbox

EXEC = {"verb": "exec"}
PIECE = 2**16
WAITING = 64  # messages from the browser that a slow client may leave unread
PATIENCE = 60.0


class Endpoints(Struct):
    """Where to drive the managed sandbox's browser and see its screen; all of them need this server's token."""

    cdpEndpoint: str
    wsEndpoint: str
    noVncEndpoint: str


def _managed(server: Server, access: Access) -> Sandbox:
    sandbox = manager_of(server, access).sandbox
    if sandbox is None:
        raise SandboxClosed("the managed sandbox is not running: start it first")
    return sandbox


# -- the browser


@get("/api/sandbox/browser", opt=EXEC)
async def browser(request: Request[Any, Any, Any], server: Server, access: Access) -> Endpoints:
    """Starts the browser, unless it is running."""
    sandbox = _managed(server, access)
    chosen = sandbox._browser
    await server.run(chosen.start)
    base = str(request.base_url).rstrip("/")
    whole = f"{base.replace('http', 'ws', 1)}/api/sandbox/browser/devtools/browser/{chosen.id}"
    return Endpoints(f"{base}/api/sandbox/browser", whole, f"{base}/screen.html#{chosen.runs_in or sandbox.id}")


@get("/api/sandbox/browser/json/version", opt=EXEC)
async def version(request: Request[Any, Any, Any], server: Server, access: Access) -> dict[str, Any]:
    """The browser's version and WebSocket, as Chromium's own debugging port would show them."""
    sandbox = _managed(server, access)
    told = await server.run(lambda: sandbox._browser.version())
    base = str(request.base_url).rstrip("/").replace("http", "ws", 1)
    return {**told, "webSocketDebuggerUrl": f"{base}/api/sandbox/browser/devtools/browser/{sandbox._browser.id}"}


class _Coming:
    """Messages from the browser to one client. `tell` and `end` are called in the browser's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.messages: asyncio.Queue[str] = asyncio.Queue(WAITING)
        self.over = asyncio.Event()

    def tell(self, text: str) -> None:
        """Queues a message. Waits once for a slow client, then ends the conversation."""
        try:
            if not self.over.is_set():
                asyncio.run_coroutine_threadsafe(self.messages.put(text), self._loop).result(PATIENCE)
        except TimeoutError:
            self.end()
        except RuntimeError:
            pass  # the server has ended

    def end(self) -> None:
        """Ends the conversation."""
        self._loop.call_soon_threadsafe(self.over.set)


@websocket("/api/sandbox/browser/devtools/browser/{target:str}", opt=EXEC)
async def devtools(socket: WebSocket[Any, Any, Any], server: Server, access: Access, target: str) -> None:
    """Chromium's debugging protocol."""
    try:
        chosen = _managed(server, access)._browser
    except SandboxError as problem:
        raise Refusal(409, "wrong_state", str(problem)) from None
    if target != chosen.id:
        raise Refusal(404, "not_found", "there is no such browser")
    coming = _Coming()
    client = await server.run(lambda: chosen.attach(coming.tell, coming.end), lambda one: one.close())
    await socket.accept()

    async def out() -> None:
        while True:
            await socket.send_data(await coming.messages.get(), mode="text")

    async def into() -> None:
        while True:
            message: Any = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text") or ""
            await server.run(lambda: client.send(text))  # noqa: B023 - awaited at once

    try:
        await _first(out(), into(), coming.over.wait())
    finally:
        coming.over.set()  # `tell` need not wait any more
        await server.run(client.close)
        await _close(socket)


# -- the screen


@websocket("/v1/sandboxes/{id:str}/vnc", opt=EXEC)
async def vnc(socket: WebSocket[Any, Any, Any], server: Server, reached: Reached, control: bool = False) -> None:
    """The screen, as VNC in binary frames. With `control=true`, the caller may also use the mouse and the keyboard."""
    desktop = reached.sandbox.desktop  # of this process, or of the one that owns the sandbox
    try:
        line = await server.run(lambda: desktop._look(control), lambda one: one.close())
    except (SandboxError, OSError) as problem:
        raise Refusal(409, "no_screen", str(problem)) from None
    offered = socket.scope.get("subprotocols") or []
    await socket.accept(subprotocols=offered[0] if offered else None)
    await _show(socket, line, Filter(control))


async def _show(socket: WebSocket[Any, Any, Any], line: sockets.socket, judged: Filter) -> None:
    line.setblocking(False)
    loop = asyncio.get_running_loop()

    async def out() -> None:
        said = Introduction(MOST_PIXELS)
        while data := await loop.sock_recv(line, PIECE):
            passed = said.feed(data)
            if passed is None:
                return  # not what one of our displays would send
            await socket.send_data(passed, mode="binary")

    async def into() -> None:
        while True:
            message: Any = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            passed = judged.feed(message.get("bytes") or b"")
            if passed is None:
                return
            await asyncio.wait_for(loop.sock_sendall(line, passed), PATIENCE)  # a display may have stopped reading

    try:
        await _first(out(), into())
    finally:
        line.close()
        await _close(socket)


async def _first(*work: Any) -> None:
    """Runs them all until one has ended, in whatever way; then cancels the others."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _close(socket: WebSocket[Any, Any, Any]) -> None:
    try:
        await socket.close()
    except (WebSocketDisconnect, RuntimeError):
        pass


ROUTES = [browser, version, devtools, vnc]
