"""VNC's protocol (RFB), as much of it as is needed to decide what a viewer may say."""

from __future__ import annotations

_HANDSHAKE = 14  # version, kind of security (none), whether to share
_MOST = 2**16  # bytes of one message
# What a viewer needs to see: the pixels' format, encodings, updates, and the fences that pace them.
_PIXEL_FORMAT, _ENCODINGS, _UPDATE, _KEY, _POINTER, _CUT_TEXT = 0, 2, 3, 4, 5, 6
_CONTINUOUS, _FENCE, _RESIZE, _QEMU = 150, 248, 251, 255
_LOOKING = {_PIXEL_FORMAT, _ENCODINGS, _UPDATE, _CONTINUOUS, _FENCE}
_TOUCHING = {_KEY, _POINTER, _QEMU}
_FIXED = {_PIXEL_FORMAT: 20, _UPDATE: 10, _KEY: 8, _POINTER: 6, _CONTINUOUS: 10, _QEMU: 12}


class Filter:
    """Takes what a viewer sends, and gives what of it the display may have. No clipboard, no resizing, ever."""

    def __init__(self, control: bool) -> None:
        """With `control` the mouse and the keyboard are passed on."""
        self._passed = _LOOKING | _TOUCHING if control else _LOOKING
        self._held = bytearray()
        self._greeting = _HANDSHAKE

    def feed(self, data: bytes) -> bytes | None:
        """What to pass on of all that has come; None for a viewer that speaks something else."""
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
        """Of the next message; 0 when too little of it is here, None when it is not known."""
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
