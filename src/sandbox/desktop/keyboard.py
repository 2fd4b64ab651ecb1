"""Types any text on a display whose keyboard has few keys: characters without a key borrow unused keys.

A program learns what a borrowed key means when it handles the first press, by asking the display what it means *now*.
So a borrowed key gets another meaning only after a pause in which programs can catch up.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sandbox.desktop.keys import SHIFT, keysym
from sandbox.desktop.x11 import DisplayLost
from sandbox.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandbox.desktop.x11 import Display

MOST_TEXT = 4096
_CAUGHT_UP = 1.0  # seconds: 0.25 was too short for a terminal on a busy machine
_DOWN, _UP = 2, 3


class Keyboard:
    """The keyboard of one display. Not thread-safe."""

    def __init__(self, display: Display) -> None:
        """Raises DisplayLost."""
        self._display = display
        first, keys = display.keyboard()
        self._known: dict[int, tuple[int, bool]] = {}  # keysym -> keycode, with Shift
        for code, meanings in reversed(list(enumerate(keys, first))):
            for level, meaning in reversed(list(enumerate(meanings[:2]))):
                if meaning:
                    self._known[meaning] = code, bool(level)
            if len(meanings) > 1 and not meanings[1] and 0x61 <= meanings[0] <= 0x7A:
                self._known[meanings[0] - 0x20] = code, True  # a letter alone: Shift makes it a capital
        if SHIFT not in self._known:
            raise DisplayLost("the display described its keyboard wrongly")
        self._free = [code for code, meanings in enumerate(keys, first) if not any(meanings)]
        self._borrowed: list[int] = []  # keysyms, in the order of the free keys

    def type(self, text: str) -> None:
        """Types any text. Raises InvalidArgument, DisplayLost."""
        if not isinstance(text, str) or len(text) > MOST_TEXT:
            raise InvalidArgument("at most {most} characters can be typed at once", most=MOST_TEXT)
        wanted = [keysym(one) for one in text.replace("\r\n", "\n")]
        while wanted:
            ready = self._prepare(wanted)
            for one in wanted[:ready]:
                self._press([one])
            wanted = wanted[ready:]
        self._display.settle()

    def press(self, chords: Iterable[list[int]]) -> None:
        """Presses keys together, one chord after another. Raises InvalidArgument, DisplayLost."""
        for chord in chords:
            if self._prepare(chord) < len(chord):
                raise InvalidArgument("this keyboard has too few keys to press these together")
            self._press(chord)
        self._display.settle()

    def hold(self, chord: list[int], down: bool) -> None:
        """Presses keys and leaves them down, or lets them go. Raises InvalidArgument, DisplayLost."""
        if self._prepare(chord) < len(chord):
            raise InvalidArgument("this keyboard has too few keys to press these together")
        for code, _ in (self._known[one] for one in chord):
            self._display.fake(_DOWN if down else _UP, code)
        self._display.settle()

    def _press(self, chord: list[int]) -> None:
        shift = self._known[SHIFT][0]
        codes = [self._known[one] for one in chord]
        shifted = any(with_shift for _, with_shift in codes)
        held = ([shift] if shifted else []) + [code for code, _ in codes]
        for code in held:
            self._display.fake(_DOWN, code)
        for code in reversed(held):
            self._display.fake(_UP, code)

    def _prepare(self, wanted: list[int]) -> int:
        """Gives as many of `wanted` a key as possible. Returns how many, counted from the first, have one."""
        missing = list(dict.fromkeys(one for one in wanted if one not in self._known))
        if not missing:
            return len(wanted)
        room = 2 * len(self._free)
        if not room:
            raise InvalidArgument("this display's keyboard has no unused key to type other characters with")
        if len(self._borrowed) + len(missing) > room and self._borrowed:
            time.sleep(_CAUGHT_UP)
            for one in self._borrowed:
                del self._known[one]
            self._borrowed = []
            missing = list(dict.fromkeys(one for one in wanted if one not in self._known))
        self._lend(missing[: room - len(self._borrowed)])
        lacking = {one for one in missing if one not in self._known}
        return next((at for at, one in enumerate(wanted) if one in lacking), len(wanted))

    def _lend(self, keysyms: list[int]) -> None:
        start = len(self._borrowed) // 2
        self._borrowed += keysyms
        for place in range(start, (len(self._borrowed) + 1) // 2):
            pair = self._borrowed[2 * place : 2 * place + 2]
            code = self._free[place]
            self._display.map_keys(code, [(pair[0], pair[-1])])
            for level, one in enumerate(pair):
                self._known[one] = code, bool(level)
        self._display.settle()
