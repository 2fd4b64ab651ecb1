"""What can be asked of a desktop, as the method `desktop` and the HTTP routes take it: `{"do": "click", "x": 1, …}`."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

Coordinate = Annotated[int, Meta(ge=0, lt=2**15)]
Length = Annotated[int, Meta(ge=1, lt=2**15)]
Button = Annotated[str, Meta(max_length=16, examples=["left"])]
Keys = Annotated[str, Meta(min_length=1, max_length=128, examples=["ctrl+s"])]
Text = Annotated[str, Meta(max_length=4096)]
Notches = Annotated[int, Meta(ge=-100, le=100)]


class _Asked(Struct, tag_field="do", tag=str.lower, forbid_unknown_fields=True, omit_defaults=True):
    def params(self) -> dict[str, Any]:
        """The arguments of the desktop's method."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in given.items() if value is not None}


class Start(_Asked):
    """Starts the screen."""


class Size(_Asked):
    """The screen's width and height."""


class Screenshot(_Asked):
    """A picture of the screen or of a part of it."""

    x: Coordinate = 0
    y: Coordinate = 0
    width: Length | None = None
    height: Length | None = None


class Windows(_Asked):
    """The open windows."""


class Click(_Asked):
    """A click."""

    x: Coordinate
    y: Coordinate
    button: Button = "left"
    count: Annotated[int, Meta(ge=1, le=5)] = 1


class Move(_Asked):
    """The pointer moves."""

    x: Coordinate
    y: Coordinate


class Point(Struct, forbid_unknown_fields=True):
    """A place on the screen."""

    x: Coordinate
    y: Coordinate


class Drag(_Asked):
    """A drag over points."""

    path: Annotated[list[Point], Meta(min_length=2, max_length=1000)]
    button: Button = "left"

    def params(self) -> dict[str, Any]:
        return {"path": [{"x": one.x, "y": one.y} for one in self.path], "button": self.button}


class Scroll(_Asked):
    """The wheel turns."""

    x: Coordinate
    y: Coordinate
    dx: Notches = 0
    dy: Notches = 0


class Mouse(_Asked):
    """A button is pressed, or let go."""

    down: bool
    button: Button = "left"


class Pointer(_Asked):
    """Where the pointer is."""


class Type(_Asked):
    """Text is typed."""

    text: Text


class Keypress(_Asked):
    """Keys are pressed."""

    keys: Keys


class Hold(_Asked):
    """Keys are held down, or let go."""

    keys: Keys
    down: bool


class RecordAudio(_Asked, tag="record_audio"):
    """A recording of what is played."""

    duration_ms: Annotated[int, Meta(ge=250, le=30_000)]


class PlayAudio(_Asked, tag="play_audio"):
    """A sound is played."""

    data: bytes
    format: Annotated[str, Meta(max_length=8)] = "wav"


class StartVideo(_Asked, tag="start_video"):
    """A recording of the screen begins."""

    rate: Annotated[int, Meta(ge=1, le=30)] = 10


class StopVideo(_Asked, tag="stop_video"):
    """It ends."""


class Capabilities(_Asked):
    """What works."""


Asked = (
    Start
    | Size
    | Screenshot
    | Windows
    | Click
    | Move
    | Drag
    | Scroll
    | Mouse
    | Pointer
    | Type
    | Keypress
    | Hold
    | RecordAudio
    | PlayAudio
    | StartVideo
    | StopVideo
    | Capabilities
)


def method_of(asked: Asked) -> str:
    """The desktop's method that is asked for."""
    return str(type(asked).__struct_config__.tag)
