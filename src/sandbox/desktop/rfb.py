"""The part of VNC's protocol (RFB) that is needed to decide what a viewer may send, and how a display may begin.

Neither trusts the other. A viewer that may only look must not type. A display that programs inside replaced must not
ask a person's viewer for a password, or begin with a picture that fills its memory.
"""

from __future__ import annotations

_HANDSHAKE = 14  # bytes: version, security type (none), whether to share
_MOST = 2**16  # bytes of one message
# What a viewer needs in order to see: the pixel format, encodings, updates, and the fences that pace them.
_PIXEL_FORMAT, _ENCODINGS, _UPDATE, _KEY, _POINTER, _CUT_TEXT = 0, 2, 3, 4, 5, 6
_CONTINUOUS, _FENCE, _RESIZE, _QEMU = 150, 248, 251, 255
_LOOKING = {_PIXEL_FORMAT, _ENCODINGS, _UPDATE, _CONTINUOUS, _FENCE}
_TOUCHING = {_KEY, _POINTER, _QEMU}
_FIXED = {_PIXEL_FORMAT: 20, _UPDATE: 10, _KEY: 8, _POINTER: 6, _CONTINUOUS: 10, _QEMU: 12}


_VERSION = b"RFB 003.008\n"
_NO_SECURITY = b"\x01\x01"  # one security type: none. The server's token protects the screen
_INIT = 24  # bytes: width, height, pixel format, length of the name
_MOST_NAME = 4096
_NAME = b"sandbox"


class Introduction:
    """Filters what a display sends before its first picture: returns what may be passed on to a viewer."""

    def __init__(self, most_pixels: int) -> None:
        self._most_pixels = most_pixels
        self._held = bytearray()
        self._steps = [self._version, self._security, self._result, self._screen]

    def feed(self, data: bytes) -> bytes | None:
        """What to pass on of the data so far; None if the display breaks the protocol."""
        if not self._steps:
            return data
        self._held += data
        out = bytearray()
        while self._steps:
            said = self._steps[0]()
            if said is None:
                return None
            if not said:
                return bytes(out)
            out += said
            del self._steps[0]
        out += self._held
        self._held.clear()
        return bytes(out)

    def _take(self, size: int) -> bytes:
        """Removes and returns `size` bytes; b"" when they have not all arrived."""
        if len(self._held) < size:
            return b""
        taken = bytes(self._held[:size])
        del self._held[:size]
        return taken

    def _version(self) -> bytes | None:
        said = self._take(len(_VERSION))
        return said if said in (b"", _VERSION) else None

    def _security(self) -> bytes | None:
        if not self._held:
            return b""
        kinds = self._take(1 + self._held[0])
        return b"" if not kinds else _NO_SECURITY if 1 in kinds[1:] else None

    def _result(self) -> bytes | None:
        said = self._take(4)
        return said if said in (b"", bytes(4)) else None

    def _screen(self) -> bytes | None:
        if len(self._held) < _INIT:
            return b""
        width, height = int.from_bytes(self._held[:2], "big"), int.from_bytes(self._held[2:4], "big")
        length = int.from_bytes(self._held[20:24], "big")
        if length > _MOST_NAME or width * height > self._most_pixels:
            return None
        said = self._take(_INIT + length)
        return said[:20] + len(_NAME).to_bytes(4, "big") + _NAME if said else b""


class Filter:
    """Filters what a viewer sends: returns what may be passed on to the display. Never the clipboard or resizing."""

    def __init__(self, control: bool) -> None:
        """With `control`, mouse and keyboard are passed on, too."""
        self._passed = _LOOKING | _TOUCHING if control else _LOOKING
        self._held = bytearray()
        self._greeting = _HANDSHAKE

    def feed(self, data: bytes) -> bytes | None:
        """What to pass on of the data so far; None if the viewer breaks the protocol."""
        out = bytearray()
        if self._greeting:
            out += data[: self._greeting]
            data = data[self._greeting :]
            self._greeting -= len(out)
        self._held += data
        while self._held:
            length = self._length()
            if length is None or length > _MOST:
                return None
            if length == 0 or len(self._held) < length:
                break
            if self._held[0] in self._passed:
                out += self._held[:length]
            del self._held[:length]
        return bytes(out)

    def _length(self) -> int | None:
        """The length of the next message; 0 when too little of it has arrived, None for an unknown kind."""
        held, kind = self._held, self._held[0]
        if kind in _FIXED:
            return _FIXED[kind]
        if kind == _ENCODINGS:
            return 4 + 4 * int.from_bytes(held[2:4], "big") if len(held) >= 4 else 0
        if kind == _CUT_TEXT:
            return 8 + abs(int.from_bytes(held[4:8], "big", signed=True)) if len(held) >= 8 else 0
        if kind == _FENCE:
            return 9 + held[8] if len(held) >= 9 else 0
        if kind == _RESIZE:
            return 8 + 16 * held[6] if len(held) >= 8 else 0
        return None
