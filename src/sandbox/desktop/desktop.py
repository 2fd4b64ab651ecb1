"""The desktop of a sandbox in this process: one per sandbox, made by `Sandbox.desktop`."""

from __future__ import annotations

import os
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import ref

from sandbox.desktop import mouse, png, programs, windows
from sandbox.desktop.keys import chords
from sandbox.desktop.methods import DesktopMethods
from sandbox.desktop.x11 import DisplayLost
from sandbox.errors import Denied, InvalidArgument, SandboxClosed, SandboxError
from sandbox.events import event

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Protocol

    from sandbox.desktop.keyboard import Keyboard
    from sandbox.desktop.sound import Sound
    from sandbox.desktop.video import Video
    from sandbox.desktop.x11 import Display
    from sandbox.sandbox import Sandbox

    class AnyScreen(Protocol):
        """The sandbox's own screen, or the host's."""

        environment: dict[str, str]
        display: Display
        keyboard: Keyboard
        shared: bool

        def close(self) -> None: ...


Result = dict[str, Any]
MOST_PIXELS = 3840 * 2160


class Desktop(DesktopMethods):
    """Thread-safe. Actions on the screen are done one after another."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._of = ref(sandbox)
        self._screen: AnyScreen | None = None
        self._lock = RLock()
        self._sound: Sound | None = None
        self._sound_lock = RLock()
        self._video: Video | None = None
        self._found: dict[str, str] | None = None
        self._closed = False

    @property
    def _sandbox(self) -> Sandbox:
        sandbox = self._of()
        if sandbox is None or self._closed:
            raise SandboxClosed("the sandbox is closed")
        return sandbox

    def _call(self, method: str, **params: Any) -> Result:
        _require_enabled(self._sandbox)
        self._sandbox._used()
        result: Result = getattr(self, f"_do_{method}")(**params)
        return result

    def close(self) -> None:
        """Ends everything that was started. Idempotent."""
        self._closed = True  # without the lock: a call in progress fails because its display is closed
        screen, self._screen = self._screen, None
        for part in (self._video, self._sound, screen):
            if part is not None:
                part.close()

    # -- the screen, started when it is needed

    def _on_screen(self, work: Callable[[AnyScreen], Result]) -> Result:
        """Does `work` on the screen. If the screen has ended, raises SandboxError; the next call starts it again."""
        with self._lock:
            screen = self._standing()
            screen.display.begin()
            try:
                return work(screen)
            except DisplayLost as problem:
                self._screen = None
                screen.close()
                self._tell("ended", str(problem))
                raise SandboxError(
                    "{problem}; the next use of the desktop starts it again", problem=problem
                ) from problem

    def _standing(self) -> AnyScreen:
        if self._screen is None:
            self._screen = self._begin()
        return self._screen

    def _begin(self) -> AnyScreen:
        from sandbox.desktop.screen import Screen

        sandbox = self._sandbox
        if sandbox.config.desktop.display == "host":
            from sandbox.desktop.host_screen import HostScreen

            return HostScreen(sandbox, os.environ)
        self._need_walls()
        screen = Screen(sandbox, sandbox.config.desktop.size, self._programs())
        sandbox._plan.environment.update(screen.environment)
        self._tell("started", "")
        return screen

    def _need_walls(self) -> None:
        if not self._sandbox._plan.walls:
            raise SandboxError("without walls there is no desktop of the sandbox's own: choose another mode")

    def _programs(self) -> dict[str, str]:
        if self._found is None:
            self._found = programs.find(self._sandbox)
        return self._found

    def _tell(self, state: str, reason: str) -> None:
        sandbox = self._sandbox
        sandbox._events.emit(event("desktop", state=state, reason=reason))
        sandbox.record.write("sandbox_lifecycle", f"desktop {state}", metadata={"reason": reason} if reason else None)

    def _do_start(self) -> Result:
        return self._on_screen(lambda screen: {"env": screen.environment})

    def _do_size(self) -> Result:
        return self._on_screen(lambda screen: dict(zip(("width", "height"), screen.display.size(), strict=True)))

    def _do_screenshot(self, x: int = 0, y: int = 0, width: int | None = None, height: int | None = None) -> Result:
        def take(screen: AnyScreen) -> tuple[bytes, int, int]:
            wide, high = screen.display.size()
            w, h = wide - x if width is None else width, high - y if height is None else height
            if not (0 <= x < wide and 0 <= y < high and 0 < w <= wide - x and 0 < h <= high - y):
                raise InvalidArgument(
                    "that part is not on the screen, which is {width}×{height}", width=wide, height=high
                )
            if w * h > MOST_PIXELS:
                raise SandboxError(
                    "a program inside made the screen {width}×{height}: too large for a picture", width=w, height=h
                )
            return screen.display.image(x, y, w, h), w, h

        taken: list[tuple[bytes, int, int]] = []
        self._on_screen(lambda screen: taken.append(take(screen)) or {})  # type: ignore[func-returns-value]
        pixels, w, h = taken[0]
        # Outside the lock: another thread may click meanwhile.
        return {"format": "png", "width": w, "height": h, "data": png.encode(pixels, w, h)}

    def _do_windows(self) -> Result:
        return self._on_screen(lambda screen: {"windows": windows.list_windows(screen.display)})

    # -- mouse and keyboard

    def _with(self, work: Callable[[AnyScreen], object]) -> Result:
        def done(screen: AnyScreen) -> Result:
            work(screen)
            return {}

        return self._on_screen(done)

    def _do_click(self, x: int, y: int, button: str = "left", count: int = 1) -> Result:
        return self._with(lambda screen: mouse.click(screen.display, x, y, button, count))

    def _do_move(self, x: int, y: int) -> Result:
        return self._with(lambda screen: mouse.move(screen.display, x, y))

    def _do_drag(self, path: list[dict[str, int]], button: str = "left") -> Result:
        points = [(one["x"], one["y"]) for one in path]
        return self._with(lambda screen: mouse.drag(screen.display, points, button))

    def _do_scroll(self, x: int, y: int, dx: int = 0, dy: int = 0) -> Result:
        return self._with(lambda screen: mouse.scroll(screen.display, x, y, dx, dy))

    def _do_mouse(self, down: bool, button: str = "left") -> Result:
        return self._with(lambda screen: mouse.hold(screen.display, button, down))

    def _do_pointer(self) -> Result:
        return self._on_screen(lambda screen: dict(zip(("x", "y"), screen.display.pointer(), strict=True)))

    def _do_type(self, text: str) -> Result:
        return self._with(lambda screen: screen.keyboard.type(text))

    def _do_keypress(self, keys: str) -> Result:
        pressed = chords(keys)
        return self._with(lambda screen: screen.keyboard.press(pressed))

    def _do_hold(self, keys: str, down: bool) -> Result:
        chord = [one for each in chords(keys) for one in each]
        return self._with(lambda screen: screen.keyboard.hold(chord, down))

    # -- sound: with its own lock, because a recording takes a while

    def _sounding(self) -> Sound:
        from sandbox.desktop.sound import Sound

        sandbox = self._sandbox
        if not sandbox.config.desktop.sound:
            raise Denied("desktop.sound", "the configuration says that this sandbox has no sound")
        self._need_walls()
        with self._sound_lock:
            if self._sound is None:
                self._sound = Sound(sandbox, self._programs())
                sandbox._plan.environment.update(self._sound.environment)
            return self._sound

    def _do_record_audio(self, duration_ms: int) -> Result:
        data = self._with_sound(lambda sound: sound.record(self._sandbox, duration_ms))
        return {"format": "wav", "duration_ms": duration_ms, "data": data}

    def _do_play_audio(self, data: bytes, format: str = "wav") -> Result:
        self._with_sound(lambda sound: sound.play(self._sandbox, data, format))
        return {}

    def _with_sound(self, work: Callable[[Sound], Any]) -> Any:
        """Does `work` with the sound server. If that fails, the next call starts the server again."""
        sound = self._sounding()
        try:
            return work(sound)
        except InvalidArgument:
            raise
        except SandboxError:
            with self._sound_lock:
                if self._sound is sound:
                    self._sound = None
                    sound.close()
            raise

    # -- video

    def _do_start_video(self, rate: int = 10) -> Result:
        from sandbox.desktop.video import Video

        def begin(screen: AnyScreen) -> Result:
            if self._video is not None:
                raise SandboxError("a recording is already running")
            self._video = Video(self._sandbox, self._programs(), screen.environment, rate)
            return {}

        return self._on_screen(begin)

    def _do_stop_video(self) -> Result:
        with self._lock:
            video, self._video = self._video, None
        if video is None:
            raise SandboxError("no recording is running")
        return {"format": "webm", "data": video.end(self._sandbox)}

    # -- for viewers

    def _look(self, control: bool) -> socket.socket:
        """A connection to the screen's VNC server inside; on the record. Raises SandboxError, OSError."""
        _require_enabled(self._sandbox)
        shared: list[bool] = []
        self._with(lambda screen: shared.append(screen.shared))
        return _looked_at(self._sandbox, shared[0], control)

    # -- what works

    def _do_capabilities(self) -> Result:
        """Tries to start the screen and the sound: an installed program may still fail. The rest is only looked up."""
        found = self._tried(self._programs) or {}
        screen = found.get("Xvnc", found.get("Xvfb")) if self._tried(self._do_start) else None
        sound = found.get("pulseaudio") if self._tried(self._sounding) else None
        ffmpeg = found.get("ffmpeg")
        sandbox = self._sandbox
        browser = self._tried(sandbox._browser.program) if sandbox.config.browser.enabled else None
        return {
            "screenshot": screen,
            "windowList": screen,
            "computerUse": screen,
            "audioRecord": sound,
            "audioPlay": ffmpeg if sound is not None else None,
            "video": ffmpeg if screen is not None else None,
            "browser": browser,
            "vnc": screen if screen is not None and screen.endswith("Xvnc") else None,
        }

    @staticmethod
    def _tried(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except SandboxError:
            return None


def _require_enabled(sandbox: Sandbox) -> None:
    if not sandbox.config.desktop.enabled:
        raise Denied("desktop.enabled", "the configuration says that this sandbox has no desktop")


def _looked_at(sandbox: Sandbox, shared: bool, control: bool) -> socket.socket:
    from sandbox.desktop.screen import VNC

    if not shared:
        raise SandboxError("this screen cannot be viewed remotely: that needs Xvnc inside")
    line = sandbox._dial_path(VNC)
    how = "taken over" if control else "watched"
    sandbox.record.write("privileged_capability_invocation", f"screen {how}")
    return line
