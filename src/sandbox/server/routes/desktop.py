"""Screen, keyboard, mouse and sound of a sandbox: the specification's paths, and one for any sandbox.

The host makes pictures and sound recordings itself, from pixels and samples (`sandbox/desktop/`), so no image or sound
file that a program inside wrote is passed on. A video is the exception: ffmpeg inside writes it.
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

EXEC = {"verb": "exec"}  # a token that may run commands may also use the keyboard


class Region(Struct, forbid_unknown_fields=True):
    """A part of the screen; by default all of it."""

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
    """A place, and a mouse button."""

    x: m.Coordinate
    y: m.Coordinate
    button: m.Button = "left"


class Moved(Struct, forbid_unknown_fields=True):
    """A place."""

    x: m.Coordinate
    y: m.Coordinate


class Dragged(Struct, forbid_unknown_fields=True):
    """Where the drag begins and ends."""

    x: m.Coordinate
    y: m.Coordinate
    toX: m.Coordinate
    toY: m.Coordinate
    button: m.Button = "left"


class Scrolled(Struct, forbid_unknown_fields=True):
    """A place, and how many notches to scroll right and down."""

    x: m.Coordinate
    y: m.Coordinate
    dx: m.Notches = 0
    dy: m.Notches = 0


class Typed(Struct, forbid_unknown_fields=True):
    """Text in any script."""

    text: m.Text


class Pressed(Struct, forbid_unknown_fields=True):
    """Keys, as in `ctrl+s`."""

    keys: m.Keys


class Recorded(Struct, forbid_unknown_fields=True):
    """How long to record."""

    durationMs: Annotated[int, Meta(ge=250, le=30_000)]


class Sound(Struct):
    """A WAV file."""

    format: str
    encoding: str
    durationMs: int
    data: str


class Played(Struct, forbid_unknown_fields=True):
    """A sound file, by default WAV."""

    data: bytes
    format: Annotated[str, Meta(max_length=8)] = "wav"


class Success(Struct):
    """It worked."""

    success: bool = True


async def _do(server: Server, access: Access, asked: m.Asked) -> dict[str, Any]:
    sandbox = manager_of(server, access).sandbox
    if sandbox is None:
        raise SandboxClosed("the managed sandbox is not running: start it first")
    return await server.run(lambda: sandbox.desktop._call(m.method_of(asked), **asked.params()))


@get("/api/sandbox/capabilities", opt=EXEC)
async def capabilities(server: Server, access: Access) -> dict[str, Capability]:
    """What the managed sandbox offers besides commands. Programs are tried, so the first answer takes a moment."""
    sandbox = manager_of(server, access).sandbox
    found = {} if sandbox is None else await server.run(lambda: sandbox.desktop.capabilities())
    names = ("screenshot", "audioRecord", "audioPlay", "computerUse", "windowList", "video", "vnc", "browser")
    answer = {name: Capability(found.get(name) is not None, found.get(name)) for name in names}
    return {**answer, "shell": Capability(sandbox is not None, "/bin/sh" if sandbox is not None else None)}


@get("/api/sandbox/screen/screenshot", opt=EXEC, media_type="image/png")
async def picture(server: Server, access: Access) -> Response[bytes]:
    """A picture of the screen, as a PNG file."""
    return Response((await _do(server, access, m.Screenshot()))["data"], media_type="image/png")


@post("/api/sandbox/screen/screenshot", opt=EXEC, status_code=200)
async def screenshot(server: Server, access: Access, data: Region | None = None) -> Picture:
    """A picture of the screen, or of a part of it, in JSON."""
    part = data or Region()
    told = await _do(server, access, m.Screenshot(part.x, part.y, part.width, part.height))
    return Picture("png", "base64", told["width"], told["height"], base64.b64encode(told["data"]).decode())


@get("/api/sandbox/screen/windows", opt=EXEC)
async def windows(server: Server, access: Access) -> dict[str, Any]:
    """The open windows. Programs inside choose the titles: escape them."""
    return await _do(server, access, m.Windows())


@post("/api/sandbox/computer/click", opt=EXEC, status_code=200)
async def click(server: Server, access: Access, data: At) -> Success:
    """Clicks."""
    await _do(server, access, m.Click(data.x, data.y, data.button))
    return Success()


@post("/api/sandbox/computer/double-click", opt=EXEC, status_code=200)
async def double_click(server: Server, access: Access, data: At) -> Success:
    """Clicks twice."""
    await _do(server, access, m.Click(data.x, data.y, data.button, 2))
    return Success()


@post("/api/sandbox/computer/move", opt=EXEC, status_code=200)
async def move(server: Server, access: Access, data: Moved) -> Success:
    """Moves the pointer."""
    await _do(server, access, m.Move(data.x, data.y))
    return Success()


@post("/api/sandbox/computer/drag", opt=EXEC, status_code=200)
async def drag(server: Server, access: Access, data: Dragged) -> Success:
    """Presses a button at one place and releases it at another."""
    await _do(server, access, m.Drag([m.Point(data.x, data.y), m.Point(data.toX, data.toY)], data.button))
    return Success()


@post("/api/sandbox/computer/scroll", opt=EXEC, status_code=200)
async def scroll(server: Server, access: Access, data: Scrolled) -> Success:
    """Turns the wheel."""
    await _do(server, access, m.Scroll(data.x, data.y, data.dx, data.dy))
    return Success()


@post("/api/sandbox/computer/type", opt=EXEC, status_code=200)
async def type_text(server: Server, access: Access, data: Typed) -> Success:
    """Types text."""
    await _do(server, access, m.Type(data.text))
    return Success()


@post("/api/sandbox/computer/keypress", opt=EXEC, status_code=200)
async def keypress(server: Server, access: Access, data: Pressed) -> Success:
    """Presses keys."""
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
    """Uses any sandbox's desktop, like the JSON-RPC method `desktop`; `data` in the answer is base64."""
    told = await server.run(lambda: reached.call("desktop", data))
    if isinstance(told.get("data"), bytes):
        told = {**told, "data": base64.b64encode(told["data"]).decode()}
    return told


ROUTES = [
    capabilities, picture, screenshot, windows, click, double_click, move, drag, scroll, type_text, keypress, record,
    play, any_desktop,
]  # fmt: skip
