"""The mouse: clicks, drags and scrolling as the single events that a display takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sandbox.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandbox.desktop.x11 import Display

BUTTONS = {"left": 1, "middle": 2, "right": 3, "back": 8, "forward": 9}
_UP, _DOWN, _LEFT, _RIGHT = 4, 5, 6, 7  # the wheel's buttons
_PRESS, _RELEASE, _MOTION = 4, 5, 6
_IN_MASK = 5  # a display reports the state of the first five buttons only
_FROZEN = 2.0  # seconds to wait for a frozen pointer
MOST_NOTCHES, MOST_POINTS, MOST_CLICKS = 100, 1000, 5


def click(display: Display, x: int, y: int, button: str, count: int) -> None:
    """Moves the pointer there and clicks. Raises InvalidArgument."""
    number = button_number(button)
    if not 1 <= count <= MOST_CLICKS:
        raise InvalidArgument("the number of clicks must be 1 to {most}, not {count}", most=MOST_CLICKS, count=count)
    move(display, x, y)
    for _ in range(count):
        display.fake(_PRESS, number)
        display.fake(_RELEASE, number)
    display.settle()
    # What is typed next must go to the clicked window. The window manager gives it the keyboard, then unfreezes the
    # pointer, and only then is the button up.
    _thawed(lambda: number > _IN_MASK or not display.pressed(number))


def move(display: Display, x: int, y: int) -> None:
    """Moves the pointer. Raises InvalidArgument for a point that is not on the screen."""
    width, height = display.size()
    if not (0 <= x < width and 0 <= y < height):
        raise InvalidArgument(
            "({x}, {y}) is not on the screen, which is {width}×{height}", x=x, y=y, width=width, height=height
        )
    display.fake(_MOTION, 0, x, y)
    _thawed(lambda: display.pointer() == (x, y))


def _thawed(done: Callable[[], bool]) -> None:
    """Waits until the mouse has done what was asked. A click freezes the pointer until the window manager has handled
    it, which takes a while on a busy machine. A program may hold it for longer than we wait."""
    until = time.monotonic() + _FROZEN
    while not done() and time.monotonic() < until:
        time.sleep(0.001)


def drag(display: Display, path: Sequence[tuple[int, int]], button: str) -> None:
    """Presses at the first point and releases at the last. The button is released whatever happens in between."""
    number = button_number(button)
    if not 2 <= len(path) <= MOST_POINTS:
        raise InvalidArgument("a drag must have 2 to {most} points", most=MOST_POINTS)
    move(display, *path[0])
    display.fake(_PRESS, number)
    try:
        for point in path[1:]:
            move(display, *point)
    finally:
        display.fake(_RELEASE, number)
    display.settle()


def hold(display: Display, button: str, down: bool) -> None:
    """Presses a button, or releases it."""
    display.fake(_PRESS if down else _RELEASE, button_number(button))
    display.settle()


def scroll(display: Display, x: int, y: int, dx: int, dy: int) -> None:
    """Turns the wheel by notches."""
    if abs(dx) > MOST_NOTCHES or abs(dy) > MOST_NOTCHES:
        raise InvalidArgument("the wheel can be turned by at most {most} notches at once", most=MOST_NOTCHES)
    move(display, x, y)
    for notches, less, more in ((dy, _UP, _DOWN), (dx, _LEFT, _RIGHT)):
        for _ in range(abs(notches)):
            display.fake(_PRESS, more if notches > 0 else less)
            display.fake(_RELEASE, more if notches > 0 else less)
    display.settle()


def button_number(button: str) -> int:
    """The display's number for a button. Raises InvalidArgument."""
    if button not in BUTTONS:
        raise InvalidArgument("there is no button {name!r}; known: {known}", name=button, known=", ".join(BUTTONS))
    return BUTTONS[button]
