"""Running commands: one answer, server-sent events, or a WebSocket; and terminals."""

from __future__ import annotations

import asyncio
import base64
import signal as signals
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import MediaType, Request, Response, WebSocket, post, websocket
from litestar.exceptions import WebSocketDisconnect

from sandbox.errors import InvalidArgument
from sandbox.result import Output
from sandbox.server import sse
from sandbox.server.decoding import decode
from sandbox.server.errors import told
from sandbox.server.processes import begin, open_process, outcome, said
from sandbox.server.reach import Reached
from sandbox.server.server import Server
from sandbox.server.shapes import Control, Ended, Exec, Start

if TYPE_CHECKING:
    from sandbox.async_process import AsyncProcess
    from sandbox.result import ExecResult

STREAMS = {"stdout": b"\x01", "stderr": b"\x02"}


@post("/v1/sandboxes/{id:str}/exec", opt={"verb": "exec"}, status_code=200)
async def exec(request: Request[Any, Any, Any], server: Server, reached: Reached, data: Exec) -> Response[Any]:
    """Runs a command. With `Accept: text/event-stream`, sends its output as events `stdout` and `stderr`, then `exit`.

    Disconnecting kills the command.
    """
    process = await begin(server, reached, data)
    if "text/event-stream" in request.headers.get("accept", ""):
        return sse.response(_events(process))
    gone = asyncio.ensure_future(_gone(request))
    work = asyncio.ensure_future(_whole(process, data))
    try:
        await asyncio.wait([gone, work], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            return Response(None, status_code=499)  # the client has left: nobody reads this
        return Response(work.result(), media_type=MediaType.JSON)
    finally:
        gone.cancel()
        work.cancel()
        await process.close()


async def _gone(request: Request[Any, Any, Any]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _whole(process: AsyncProcess, asked: Exec) -> Ended:
    output = Output(asked.max_output)
    async for chunk in process.chunks():
        output.add(chunk)
    assert process.result is not None
    return ended(output.into(process.result), asked.encoding)


def ended(result: ExecResult, encoding: str) -> Ended:
    """A result, as the API shows it."""
    streams = (result.stdout_bytes, result.stderr_bytes)
    texts = [
        base64.b64encode(one).decode() if encoding == "base64" else one.decode("utf-8", "replace") for one in streams
    ]
    return Ended(stdout=texts[0], stderr=texts[1], truncated=result.truncated, **outcome(result))


async def _events(process: AsyncProcess) -> AsyncIterator[bytes]:
    try:
        async for chunk in process.chunks():
            yield sse.event(chunk.stream, said(chunk))
        assert process.result is not None
        yield sse.event("exit", outcome(process.result))
    except Exception as problem:  # noqa: BLE001 - the status was sent already; the error becomes the last event
        yield sse.event("error", told(problem)[1])
    finally:
        await asyncio.shield(process.close())


# -- WebSockets


@websocket("/v1/sandboxes/{id:str}/exec", opt={"verb": "exec"})
async def exec_socket(socket: WebSocket[Any, Any, Any], server: Server, reached: Reached) -> None:
    """Runs a command on pipes. The first message is `{"command": …}`. Binary frames are stdin; output is sent as binary
    frames whose first byte is 1 (stdout) or 2 (stderr). Text frames: `{"signal"|"stdin_end": …}` to the server, and
    finally `{"exit": …}` to the client."""
    await _serve(socket, server, reached, tty=False)


@websocket("/v1/sandboxes/{id:str}/terminal", opt={"verb": "exec"})
async def terminal(socket: WebSocket[Any, Any, Any], server: Server, reached: Reached) -> None:
    """A terminal. Like `exec`, but output frames are plain bytes, `{"resize": …}` sets its size, and without `command`
    it runs a shell."""
    await _serve(socket, server, reached, tty=True)


async def _serve(socket: WebSocket[Any, Any, Any], server: Server, reached: Reached, *, tty: bool) -> None:
    await socket.accept()
    try:
        asked = decode(await socket.receive_data("text"), type=Start)
        if asked.command is None and not tty:
            raise InvalidArgument("the first message needs a command")
        process, running = await open_process(server, reached, asked, tty=tty)
    except WebSocketDisconnect:
        return
    except Exception as problem:  # noqa: BLE001 - whatever it was, the client gets the error
        await _end(socket, {"error": _problem(problem)}, 4400)
        return
    try:
        await _send_json(socket, {"started": {"pid": process.pid, "joined": getattr(process, "joined", False)}})
        await _talk(socket, running, tty)
    finally:
        if asked.keep is not None:
            await server.run(process.close)  # a kept command continues to run
        else:
            await asyncio.shield(running.close())


async def _talk(socket: WebSocket[Any, Any, Any], running: AsyncProcess, tty: bool) -> None:
    """Relays input and output until the command has ended or the client has left."""
    hearing = asyncio.ensure_future(_hear(socket, running))
    saying = asyncio.ensure_future(_say(socket, running, tty))
    try:
        await asyncio.wait([hearing, saying], return_when=asyncio.FIRST_COMPLETED)
        if not saying.done() and hearing.exception() is not None:
            await _end(socket, {"error": _problem(hearing.exception())}, 4400)
    finally:
        hearing.cancel()
        saying.cancel()


async def _say(socket: WebSocket[Any, Any, Any], running: AsyncProcess, tty: bool) -> None:
    try:
        async for chunk in running.chunks():
            await socket.send_data(chunk.data if tty else STREAMS[chunk.stream] + chunk.data, mode="binary")
        assert running.result is not None
        await _end(socket, {"exit": outcome(running.result)}, 1000)
    except WebSocketDisconnect:
        pass
    except Exception as problem:  # noqa: BLE001 - as above
        await _end(socket, {"error": _problem(problem)}, 4409)


async def _hear(socket: WebSocket[Any, Any, Any], running: AsyncProcess) -> None:
    while True:
        message: Any = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if (data := message.get("bytes")) is not None:
            try:
                await running.write(data)
            except BrokenPipeError:
                pass  # the command has closed its input; its output and end still follow
            continue
        control = decode(message.get("text") or "{}", type=Control)
        if control.resize is not None:
            await running.resize(control.resize.rows, control.resize.cols)
        if control.signal is not None:
            await running.signal(_number(control.signal))
        if control.stdin_end:
            await running.close_stdin()


def _number(name: str) -> int:
    wanted = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    if wanted not in signals.Signals.__members__:
        raise InvalidArgument("no signal {name!r}; TERM, INT, HUP, KILL, …", name=name)
    return signals.Signals[wanted]


def _problem(problem: BaseException | None) -> dict[str, Any]:
    if isinstance(problem, msgspec.DecodeError):
        return {"code": "invalid", "message": str(problem)}
    body: dict[str, Any] = msgspec.to_builtins(told(problem or RuntimeError())[1])
    return body


async def _send_json(socket: WebSocket[Any, Any, Any], what: dict[str, Any]) -> None:
    await socket.send_data(msgspec.json.encode(what).decode(), mode="text")


async def _end(socket: WebSocket[Any, Any, Any], what: dict[str, Any], code: int) -> None:
    try:
        await _send_json(socket, what)
        await socket.close(code=code)
    except (WebSocketDisconnect, RuntimeError):
        pass  # the client has left


ROUTES = [exec, exec_socket, terminal]
