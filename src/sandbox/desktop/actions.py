"""Actions as models send them. Anthropic's have `action` and `coordinate`; OpenAI's have `type`, `x` and `y`."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

from sandbox.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandbox.desktop.methods import DesktopMethods, Point

    Do = Callable[[DesktopMethods, Mapping[str, Any]], "bytes | Point | None"]

LONGEST_WAIT = 30.0
_NOTCH = 100  # pixels in one notch: OpenAI scrolls by pixels
_DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
_BUTTONS = {"wheel": "middle"}


def act(desktop: DesktopMethods, action: Mapping[str, Any]) -> bytes | Point | None:
    """Does one action. Raises InvalidArgument for an unknown or incomplete one."""
    for wrapper in ("input", "action"):  # a whole `tool_use` or `computer_call`
        if isinstance(inner := action.get(wrapper), dict):
            action = inner
    name = action.get("action", action.get("type"))
    table = ANTHROPIC if "action" in action else OPENAI
    if not isinstance(name, str) or name not in table:
        raise InvalidArgument("there is no action {name!r}; known: {known}", name=name, known=", ".join(table))
    try:
        return table[name](desktop, action)
    except (KeyError, TypeError, ValueError, OverflowError, struct.error) as problem:
        if isinstance(problem, InvalidArgument):
            raise
        raise InvalidArgument("the action {name} has a missing or invalid field", name=name) from None


def _at(action: Mapping[str, Any], key: str = "coordinate") -> Point:
    x, y = action[key]
    return int(x), int(y)


def _place(desktop: DesktopMethods, action: Mapping[str, Any]) -> Point:
    """The action's coordinate, or else the pointer's position."""
    return _at(action) if action.get("coordinate") is not None else desktop.pointer()


def _click(button: str, count: int = 1) -> Do:
    def do(desktop: DesktopMethods, action: Mapping[str, Any]) -> None:
        x, y = _place(desktop, action)
        _holding(desktop, action.get("text"), lambda: desktop.click(x, y, button, count))

    return do


def _holding(desktop: DesktopMethods, keys: str | None, work: Callable[[], object]) -> None:
    """Does `work` while keys are held down."""
    if not keys:
        work()
        return
    desktop.hold(keys, True)
    try:
        work()
    finally:
        desktop.hold(keys, False)


def _hold_key(desktop: DesktopMethods, action: Mapping[str, Any]) -> None:
    seconds = _seconds(action["duration"])
    _holding(desktop, action["text"], lambda: time.sleep(seconds))


def _wait(desktop: DesktopMethods, action: Mapping[str, Any]) -> None:
    time.sleep(_seconds(action.get("duration", 1.0)))


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not 0 <= seconds <= LONGEST_WAIT:
        raise InvalidArgument("an action waits at most {most:g} seconds", most=LONGEST_WAIT)
    return seconds


def _scroll(desktop: DesktopMethods, action: Mapping[str, Any]) -> None:
    right, down = _DIRECTIONS[action["scroll_direction"]]
    amount = int(action.get("scroll_amount", 3))
    x, y = _place(desktop, action)
    _holding(desktop, action.get("text"), lambda: desktop.scroll(x, y, right * amount, down * amount))


def _drag(desktop: DesktopMethods, action: Mapping[str, Any]) -> None:
    start = _at(action, "start_coordinate") if "start_coordinate" in action else desktop.pointer()
    desktop.drag([start, _at(action)])


def _zoom(desktop: DesktopMethods, action: Mapping[str, Any]) -> bytes:
    left, top, right, bottom = (int(one) for one in action["region"])
    return desktop.screenshot((left, top, right - left, bottom - top))


def _notches(pixels: Any) -> int:
    whole = int(pixels)
    sign = -1 if whole < 0 else 1
    return sign * max(1, round(abs(whole) / _NOTCH)) if whole else 0


def _button(action: Mapping[str, Any]) -> str:
    name: str = action.get("button", "left")
    return _BUTTONS.get(name, name)


def _keys(action: Mapping[str, Any]) -> str:
    keys = action["keys"]
    return keys if isinstance(keys, str) else "+".join(keys)


def _held(do: Do) -> Do:
    """The same action, with the `keys` that OpenAI's mouse actions may have held down meanwhile."""

    def done(desktop: DesktopMethods, action: Mapping[str, Any]) -> None:
        _holding(desktop, _keys(action) if action.get("keys") else None, lambda: do(desktop, action))

    return done


ANTHROPIC: dict[str, Do] = {
    "screenshot": lambda desktop, action: desktop.screenshot(),
    "zoom": _zoom,
    "cursor_position": lambda desktop, action: desktop.pointer(),
    "key": lambda desktop, action: desktop.keypress(action["text"]),
    "hold_key": _hold_key,
    "type": lambda desktop, action: desktop.type(action["text"]),
    "mouse_move": lambda desktop, action: desktop.move(*_at(action)),
    "left_click": _click("left"),
    "right_click": _click("right"),
    "middle_click": _click("middle"),
    "double_click": _click("left", 2),
    "triple_click": _click("left", 3),
    "left_click_drag": _drag,
    "left_mouse_down": lambda desktop, action: desktop.mouse(True),
    "left_mouse_up": lambda desktop, action: desktop.mouse(False),
    "scroll": _scroll,
    "wait": _wait,
}
OPENAI: dict[str, Do] = {
    "screenshot": lambda desktop, action: desktop.screenshot(),
    "click": _held(lambda desktop, action: desktop.click(action["x"], action["y"], _button(action))),
    "double_click": _held(lambda desktop, action: desktop.double_click(action["x"], action["y"])),
    "move": _held(lambda desktop, action: desktop.move(action["x"], action["y"])),
    "drag": _held(lambda desktop, action: desktop.drag([(one["x"], one["y"]) for one in action["path"]])),
    "scroll": _held(
        lambda desktop, action: desktop.scroll(
            action["x"], action["y"], _notches(action.get("scroll_x", 0)), _notches(action.get("scroll_y", 0))
        )
    ),
    "type": lambda desktop, action: desktop.type(action["text"]),
    "keypress": lambda desktop, action: desktop.keypress(_keys(action)),
    "wait": _wait,
}
