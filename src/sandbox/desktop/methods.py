"""What can be done with a desktop: the same methods for a sandbox in this process and for one in another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Point = tuple[int, int]


class Window(NamedTuple):
    """A window on the screen. The program inside chooses title and app."""

    id: str
    title: str
    app: str


class BrowserEndpoints(NamedTuple):
    """Where a browser inside can be driven: loopback addresses that only the owner can use.

    Playwright: `playwright.chromium.connect_over_cdp(ws_endpoint)`. Selenium: `options.debugger_address =
    debugger_address`. `cdp_endpoint` is the base URL of `/json/version`.
    """

    ws_endpoint: str
    cdp_endpoint: str
    debugger_address: str


class DesktopMethods(ABC):
    """`sb.desktop`: a screen, a keyboard, a mouse and sound. Started by the first call that needs them.

    Every method raises InvalidArgument for what makes no sense, SandboxError when the desktop cannot be started or has
    just ended, and SandboxClosed.
    """

    @abstractmethod
    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls the method in the process that owns the sandbox."""

    def start(self) -> dict[str, str]:
        """Starts the screen, unless it is running. Returns the variables by which programs inside find it."""
        return dict(self._call("start")["env"])

    # -- the screen

    def size(self) -> Point:
        """The screen's width and height."""
        told = self._call("size")
        return told["width"], told["height"]

    def screenshot(self, region: tuple[int, int, int, int] | None = None) -> bytes:
        """A picture of the screen, or of `region` (x, y, width, height): a PNG file."""
        asked = {} if region is None else dict(zip(("x", "y", "width", "height"), region, strict=True))
        png: bytes = self._call("screenshot", **asked)["data"]
        return png

    def windows(self) -> list[Window]:
        """The windows that are open, at most 256 of them."""
        return [Window(one["id"], one["title"], one["app"]) for one in self._call("windows")["windows"]]

    # -- the mouse

    def click(self, x: int, y: int, button: str = "left", count: int = 1) -> None:
        """Clicks with a button: left, middle, right, back or forward."""
        self._call("click", x=x, y=y, button=button, count=count)

    def double_click(self, x: int, y: int, button: str = "left") -> None:
        """Clicks twice."""
        self.click(x, y, button, 2)

    def move(self, x: int, y: int) -> None:
        """Moves the pointer."""
        self._call("move", x=x, y=y)

    def drag(self, path: Sequence[Point], button: str = "left") -> None:
        """Presses a button at the first point, moves along the others, and releases it at the last."""
        self._call("drag", path=[{"x": x, "y": y} for x, y in path], button=button)

    def scroll(self, x: int, y: int, dx: int = 0, dy: int = 0) -> None:
        """Turns the wheel at a point: `dy` notches down (up when negative), `dx` to the right."""
        self._call("scroll", x=x, y=y, dx=dx, dy=dy)

    def mouse(self, down: bool, button: str = "left") -> None:
        """Presses a button at the pointer's position and leaves it down, or releases it."""
        self._call("mouse", down=down, button=button)

    def pointer(self) -> Point:
        """Where the pointer is."""
        told = self._call("pointer")
        return told["x"], told["y"]

    # -- the keyboard

    def type(self, text: str) -> None:
        """Types text, any Unicode, at most 4096 characters."""
        self._call("type", text=text)

    def keypress(self, keys: str) -> None:
        """Presses keys: `"Return"`, `"ctrl+s"`, or several in turn, `"Down Down Return"`."""
        self._call("keypress", keys=keys)

    def hold(self, keys: str, down: bool) -> None:
        """Presses keys and leaves them down, or releases them."""
        self._call("hold", keys=keys, down=down)

    # -- sound

    def record_audio(self, duration: float) -> bytes:
        """Records what programs inside play for `duration` seconds (0.25 to 30): a WAV file, 48 kHz, stereo."""
        wav: bytes = self._call("record_audio", duration_ms=round(duration * 1000))["data"]
        return wav

    def play_audio(self, data: bytes, format: str = "wav") -> None:
        """Plays a sound file inside, where recording programs can hear it. Returns when it has been played."""
        self._call("play_audio", data=data, format=format)

    # -- video

    def start_video(self, rate: int = 10) -> None:
        """Begins to record the screen with `rate` pictures a second. Ends by itself after 10 minutes or 64 MiB."""
        self._call("start_video", rate=rate)

    def stop_video(self) -> bytes:
        """Ends the recording. Returns it: a WebM file."""
        video: bytes = self._call("stop_video")["data"]
        return video

    # -- the whole

    def capabilities(self) -> dict[str, str | None]:
        """What works here, and the program inside that does it; None for what does not."""
        return dict(self._call("capabilities"))

    def act(self, action: Mapping[str, Any]) -> bytes | Point | None:
        """Does what a model asked for, in the format of Anthropic's or OpenAI's computer-use tool.

        Returns a PNG for an action that asks for a picture, a point for one that asks where the pointer is, else None.
        """
        from sandbox.desktop.actions import act

        return act(self, action)
