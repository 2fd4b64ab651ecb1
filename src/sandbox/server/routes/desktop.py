"""Screen, keyboard, mouse and sound of a sandbox: the specification's paths, and one for any sandbox.

Pictures and recordings were made by this side from pixels and samples (`sandbox/desktop/`): nothing that a program
inside wrote is passed on as a file of a format that somebody parses.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any

from litestar import Response, get, post
from msgspec import Meta, Struct

from sandbox.errors import SandboxClosed
from sandbox.rpc import desktop_messages as m
from sandbox.server.guard import manager_of
from sandbox.server.reach import Reached
from sandbox.server.routes.manager import Capability
from sandbox.server.scopes import Access
from sandbox.server.server import Server

EXEC = {"verb": "exec"}  # who may run commands may as well use a keyboard


class Region(Struct, forbid_unknown_fields=True):
    """A part of the screen; all of it when nothing is given."""

    x: m.Coordinate = 0
    y: m.Coordinate = 0
    width: m.Length | None = None
    height: m.Length | None = None


class Picture(Struct):
    """A PNG file."""

    format: str
    encoding: str
    width: int
    height: int
    data: str


class At(Struct, forbid_unknown_fields=True):
    """A place, a button, and how often."""

    x: m.Coordinate
    y: m.Coordinate
    button: m.Button = "left"


class Moved(Struct, forbid_unknown_fields=True):
    """A place."""

    x: m.Coordinate
    y: m.Coordinate


class Dragged(Struct, forbid_unknown_fields=True):
    """Where it begins, and where it ends."""

    x: m.Coordinate
    y: m.Coordinate
    toX: m.Coordinate
    toY: m.Coordinate
    button: m.Button = "left"


class Scrolled(Struct, forbid_unknown_fields=True):
    """A place, and notches to the right and down."""

    x: m.Coordinate
    y: m.Coordinate
    dx: m.Notches = 0
    dy: m.Notches = 0


class Typed(Struct, forbid_unknown_fields=True):
    """Text of any script."""

    text: m.Text


class Pressed(Struct, forbid_unknown_fields=True):
    """Keys, as in `ctrl+s`."""

    keys: m.Keys


class Recorded(Struct, forbid_unknown_fields=True):
    """How long."""

    durationMs: Annotated[int, Meta(ge=250, le=30_000)]


class Sound(Struct):
    """A WAV file."""

    format: str
    encoding: str
    durationMs: int
    data: str


class Played(Struct, forbid_unknown_fields=True):
    """A sound file: WAV unless `format` says otherwise."""

    data: bytes
    format: Annotated[str, Meta(max_length=8)] = "wav"


class Success(Struct):
    """It was done."""

    success: bool = True


async def _do(server: Server, access: Access, asked: m.Asked) -> dict[str, Any]:
    sandbox = manager_of(server, access).sandbox
    if sandbox is None:
        raise SandboxClosed("the managed sandbox is not running: start it first")
    return await server.run(lambda: sandbox.desktop._call(m.method_of(asked), **asked.params()))


@get("/api/sandbox/capabilities", opt=EXEC)
async def capabilities(server: Server, access: Access) -> dict[str, Capability]:
    """What the managed sandbox offers besides commands. Each is tried, so the first answer takes a moment."""
    sandbox = manager_of(server, access).sandbox
    found = {} if sandbox is None else await server.run(lambda: sandbox.desktop.capabilities())
    names = ("screenshot", "audioRecord", "audioPlay", "computerUse", "windowList", "video", "vnc", "browser")
    answer = {name: Capability(found.get(name) is not None, found.get(name)) for name in names}
    return {**answer, "shell": Capability(True, "/bin/sh")}


@get("/api/sandbox/screen/screenshot", opt=EXEC, media_type="image/png")
async def picture(server: Server, access: Access) -> Response[bytes]:
    """A picture of the screen, as a PNG file."""
    return Response((await _do(server, access, m.Screenshot()))["data"], media_type="image/png")


@post("/api/sandbox/screen/screenshot", opt=EXEC, status_code=200)
async def screenshot(server: Server, access: Access, data: Region | None = None) -> Picture:
    """A picture of the screen or of a part of it, in JSON."""
    part = data or Region()
    told = await _do(server, access, m.Screenshot(part.x, part.y, part.width, part.height))
    return Picture("png", "base64", told["width"], told["height"], base64.b64encode(told["data"]).decode())


@get("/api/sandbox/screen/windows", opt=EXEC)
async def windows(server: Server, access: Access) -> dict[str, Any]:
    """The open windows. Titles are text of the programs' own choice: escape them."""
    return await _do(server, access, m.Windows())


@post("/api/sandbox/computer/click", opt=EXEC, status_code=200)
async def click(server: Server, access: Access, data: At) -> Success:
    """A click."""
    await _do(server, access, m.Click(data.x, data.y, data.button))
    return Success()


@post("/api/sandbox/computer/double-click", opt=EXEC, status_code=200)
async def double_click(server: Server, access: Access, data: At) -> Success:
    """Two clicks."""
    await _do(server, access, m.Click(data.x, data.y, data.button, 2))
    return Success()


@post("/api/sandbox/computer/move", opt=EXEC, status_code=200)
async def move(server: Server, access: Access, data: Moved) -> Success:
    """The pointer moves."""
    await _do(server, access, m.Move(data.x, data.y))
    return Success()


@post("/api/sandbox/computer/drag", opt=EXEC, status_code=200)
async def drag(server: Server, access: Access, data: Dragged) -> Success:
    """A button is pressed at one place and let go at another."""
    await _do(server, access, m.Drag([m.Point(data.x, data.y), m.Point(data.toX, data.toY)], data.button))
    return Success()


@post("/api/sandbox/computer/scroll", opt=EXEC, status_code=200)
async def scroll(server: Server, access: Access, data: Scrolled) -> Success:
    """The wheel turns."""
    await _do(server, access, m.Scroll(data.x, data.y, data.dx, data.dy))
    return Success()


@post("/api/sandbox/computer/type", opt=EXEC, status_code=200)
async def type_text(server: Server, access: Access, data: Typed) -> Success:
    """Text is typed."""
    await _do(server, access, m.Type(data.text))
    return Success()


@post("/api/sandbox/computer/keypress", opt=EXEC, status_code=200)
async def keypress(server: Server, access: Access, data: Pressed) -> Success:
    """Keys are pressed."""
    await _do(server, access, m.Keypress(data.keys))
    return Success()


@post("/api/sandbox/audio/record", opt=EXEC, status_code=200)
async def record(server: Server, access: Access, data: Recorded) -> Sound:
    """Records what programs inside play."""
    told = await _do(server, access, m.RecordAudio(data.durationMs))
    return Sound("wav", "base64", data.durationMs, base64.b64encode(told["data"]).decode())


@post("/api/sandbox/audio/play", opt=EXEC, status_code=200)
async def play(server: Server, access: Access, data: Played) -> Success:
    """Plays a sound inside."""
    await _do(server, access, m.PlayAudio(data.data, data.format))
    return Success()


@post("/v1/sandboxes/{id:str}/desktop", opt=EXEC, status_code=200)
async def any_desktop(server: Server, reached: Reached, data: m.Asked) -> dict[str, Any]:
    """Any sandbox's desktop, as the JSON-RPC method `desktop`; `data` of an answer is base64."""
    told = await server.run(lambda: reached.call("desktop", data))
    if isinstance(told.get("data"), bytes):
        told = {**told, "data": base64.b64encode(told["data"]).decode()}
    return told


ROUTES = [
    capabilities, picture, screenshot, windows, click, double_click, move, drag, scroll, type_text, keypress, record,
    play, any_desktop,
]  # fmt: skip
