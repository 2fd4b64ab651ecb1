"""An X client over any stream socket, with the part of the protocol that is needed to drive a display.

The display may be hostile. A reply is read only if its length is exactly what was asked for, or below a bound. Each
answer has a deadline, and so has a whole action (`begin`). Anything else ends the connection with DisplayLost. The
client chooses the byte order: little-endian.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING, TypeVar

from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
PATIENCE = 10.0  # seconds that the display has for one answer
WHOLE = 60.0  # seconds for all the answers that one action needs
_COOKIE_NAME = b"MIT-MAGIC-COOKIE-1"
_MOST_EVENTS = 100_000  # that may arrive before one answer
_Z_PIXMAP, _ALL_PLANES = 2, 0xFFFFFFFF
_TO_MANAGER = 0x180000  # event mask of the window manager: SubstructureNotify and SubstructureRedirect
_ERROR, _REPLY, _GENERIC_EVENT = 0, 1, 35


class DisplayLost(SandboxError):
    """The display has ended, or broke the protocol."""


class DisplayRefused(SandboxError):
    """The display refused a request, as X servers do for a window that no longer exists."""


class Display:
    """A connection to a display. `root` is the screen's root window. Not thread-safe."""

    def __init__(self, line: socket.socket, cookie: bytes = b"") -> None:
        """Connects over `line`, and owns it from now on. Raises DisplayLost."""
        self._line = line
        self._until = 0.0
        self._ends = time.monotonic() + WHOLE
        self._number = 0  # of the last request
        self._extensions: dict[str, int] = {}
        self._atoms: dict[str, int] = {}
        try:
            self._greet(cookie)
        except BaseException:
            line.close()
            raise

    def begin(self) -> None:
        """Begins an action: the display has WHOLE seconds for it, however many answers it needs."""
        self._ends = time.monotonic() + WHOLE

    def close(self) -> None:
        """Ends the connection, also for a thread that waits for an answer. Idempotent."""
        try:
            self._line.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._line.close()

    # -- requests

    def size(self) -> tuple[int, int]:
        """The screen's current width and height, which programs inside may have changed."""
        _, body = self._ask(14, struct.pack("<I", self.root), most=0)
        width, height = struct.unpack_from("<HH", body, 8)
        return int(width), int(height)

    def image(self, x: int, y: int, width: int, height: int) -> bytes:
        """The pixels of a part of the screen, four bytes each: blue, green, red and an unused one."""
        asked = struct.pack("<IhhHHI", self.root, x, y, width, height, _ALL_PLANES)
        depth, body = self._ask(73, asked, exactly=width * height * 4, data=_Z_PIXMAP)
        if depth != self._depth:
            raise DisplayLost("the display answered with an image of another kind")
        return body[24:]

    def pointer(self) -> tuple[int, int]:
        """Where the pointer is."""
        _, body = self._ask(38, struct.pack("<I", self.root), most=0)
        x, y = struct.unpack_from("<hh", body, 8)
        return int(x), int(y)

    def pressed(self, button: int) -> bool:
        """Whether one of the first five buttons is down."""
        _, body = self._ask(38, struct.pack("<I", self.root), most=0)
        return bool(struct.unpack_from("<H", body, 16)[0] & 0x80 << button)

    def fake(self, kind: int, detail: int, x: int = 0, y: int = 0) -> None:
        """Creates an input event (XTEST): 2/3 a key down or up, 4/5 a button down or up, 6 the pointer moves."""
        major = self._extension("XTEST")
        event = struct.pack("<BBxxII8xhh7xB", kind, detail, 0, self.root, x, y, 0)
        self._send(major, event, data=2)

    def keyboard(self) -> tuple[int, list[tuple[int, ...]]]:
        """The lowest keycode, and the keysyms of every keycode from that one on."""
        first, last = self._keycodes
        count = last - first + 1
        per, body = self._ask(101, struct.pack("<BBxx", first, count), most=count * 255 * 4)
        words = struct.unpack_from(f"<{(len(body) - 24) // 4}I", body, 24)
        if per == 0 or len(words) != per * count:
            raise DisplayLost("the display described its keyboard wrongly")
        return first, [tuple(words[at : at + per]) for at in range(0, len(words), per)]

    def map_keys(self, first: int, keysyms: list[tuple[int, int]]) -> None:
        """Gives keycodes from `first` on their keysyms, without and with Shift."""
        flat = [one for pair in keysyms for one in pair]
        self._send(100, struct.pack(f"<BBxx{len(flat)}I", first, 2, *flat), data=len(keysyms))

    def settle(self) -> None:
        """Waits until the display has handled all requests."""
        self._ask(43, b"", most=0)

    def top_windows(self) -> list[int]:
        """The windows directly below the root, bottom first; at most 65535."""
        _, body = self._ask(15, struct.pack("<I", self.root), most=0xFFFF * 4)
        (count,) = struct.unpack_from("<H", body, 8)
        return list(struct.unpack_from(f"<{min(count, (len(body) - 24) // 4)}I", body, 24))

    def visible(self, window: int) -> bool:
        """Whether a window is on the screen."""
        _, body = self._ask(3, struct.pack("<I", window), exactly=12)
        return bool(body[18] == 2)

    def property(self, window: int, name: str, most: int) -> bytes:
        """A window's property, cut off after `most` bytes; b"" if it does not have the property."""
        words = (most + 3) // 4
        asked = struct.pack("<IIIII", window, self._atom(name), 0, 0, words)
        unit, body = self._ask(20, asked, most=words * 4)
        (count,) = struct.unpack_from("<I", body, 8)
        return body[24 : 24 + min(most, count * (unit // 8))]

    def new_window(self) -> int:
        """Creates a window of our own, which is never shown."""
        window: int = self._own_ids
        self._send(1, struct.pack("<IIhhHHHHII", window, self.root, 0, 0, 1, 1, 0, 2, 0, 0))
        return window

    def tell_manager(self, window: int, message: str) -> None:
        """Sends the window manager a message about a window."""
        event = struct.pack("<BBHII20x", 33, 32, 0, window, self._atom(message))
        self._send(25, struct.pack("<II", self.root, _TO_MANAGER) + event)

    # -- names

    def _atom(self, name: str) -> int:
        if name not in self._atoms:
            text = name.encode()
            asked = struct.pack("<Hxx", len(text)) + _padded(text)
            _, body = self._ask(16, asked, most=0)
            (self._atoms[name],) = struct.unpack_from("<I", body, 0)
        return self._atoms[name]

    def _extension(self, name: str) -> int:
        if name not in self._extensions:
            text = name.encode()
            _, body = self._ask(98, struct.pack("<Hxx", len(text)) + _padded(text), most=0)
            present, major = struct.unpack_from("<BB", body, 0)
            if not present:
                raise DisplayRefused("this display has no {name} extension, so nothing can be typed there", name=name)
            self._extensions[name] = major
        return self._extensions[name]

    # -- the wire

    def _greet(self, cookie: bytes) -> None:
        self._until = time.monotonic() + PATIENCE
        name = _COOKIE_NAME if cookie else b""
        self._write(struct.pack("<BxHHHHxx", 0x6C, 11, 0, len(name), len(cookie)) + _padded(name) + _padded(cookie))
        status, length = struct.unpack("<B5xH", self._read(8))
        body = self._read(length * 4)  # at most 256 KiB
        if status != 1:
            raise DisplayLost("the display refused the connection")
        try:
            self._learn(body)
        except struct.error:
            raise DisplayLost("the display described itself wrongly") from None

    def _learn(self, body: bytes) -> None:
        self._own_ids, vendor, screens, formats, order = struct.unpack_from("<4xI8xHxxBBB", body)
        self._keycodes: tuple[int, int] = struct.unpack_from("<26xBB", body)
        if not 8 <= self._keycodes[0] <= self._keycodes[1]:
            raise DisplayLost("the display described itself wrongly")
        at = 32 + (vendor + 3) // 4 * 4 + formats * 8
        if screens < 1 or order != 0:
            raise DisplayLost("the display has no screen that can be read")
        root, visual, depth, depths = struct.unpack_from("<I28xIxxBB", body, at)
        self.root: int = root
        self._depth: int = depth
        if depth != 24 or visual not in _blue_first(body, at + 40, depths):
            raise DisplayLost("the screen is not of 24 bits a pixel")

    def _send(self, opcode: int, body: bytes, data: int = 0) -> None:
        """Sends a request that has no answer unless it fails. The next `_ask` raises such a failure."""
        self._number = (self._number + 1) & 0xFFFF
        self._until = min(time.monotonic() + PATIENCE, self._ends)
        self._write(struct.pack("<BBH", opcode, data, 1 + len(body) // 4) + body)

    def _ask(
        self, opcode: int, body: bytes, most: int = 0, exactly: int | None = None, data: int = 0
    ) -> tuple[int, bytes]:
        """Sends a request; returns its answer's second byte and everything after its length field.

        Raises DisplayLost, DisplayRefused.
        """
        self._send(opcode, body, data)
        earlier: DisplayRefused | None = None
        for _ in range(_MOST_EVENTS):
            head = self._read(32)
            kind, second, number, length = struct.unpack_from("<BBHI", head)
            if kind == _ERROR:
                refused = DisplayRefused("the display refused the request (error {code})", code=second)
                if number == self._number:
                    raise refused
                earlier = refused  # from a request without an answer; the answer to ours is still to come
                continue
            if kind == _REPLY:
                if number != self._number or not (length * 4 <= most if exactly is None else length * 4 == exactly):
                    raise DisplayLost("the display answered something else than it was asked")
                answer = head[8:] + self._read(length * 4)
                if earlier is not None:
                    raise earlier
                return second, answer
            if kind & 0x7F == _GENERIC_EVENT:
                raise DisplayLost("the display sent an event that nobody asked for")
        raise DisplayLost("the display does not come to an answer")

    def _write(self, data: bytes) -> None:
        self._timed(lambda: self._line.sendall(data))

    def _read(self, size: int) -> bytes:
        got = bytearray(size)
        view = memoryview(got)
        while view:
            count = self._timed(lambda: self._line.recv_into(view))  # noqa: B023 - called at once
            if not count:
                raise DisplayLost("the display has ended")
            view = view[count:]
        return bytes(got)

    def _timed(self, work: Callable[[], T]) -> T:
        left = self._until - time.monotonic()
        if left <= 0:
            raise DisplayLost("the display did not answer in time")
        self._line.settimeout(left)
        try:
            return work()
        except TimeoutError:
            raise DisplayLost("the display did not answer in time") from None
        except OSError:
            raise DisplayLost("the display has ended") from None


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _blue_first(body: bytes, at: int, depths: int) -> set[int]:
    """The 24-bit visuals with blue in the lowest byte, then green, then red."""
    found = set()
    for _ in range(depths):
        depth, visuals = struct.unpack_from("<BxH", body, at)
        at += 8
        for _ in range(visuals):
            visual, red, green, blue = struct.unpack_from("<I4xIII", body, at)
            if depth == 24 and (red, green, blue) == (0xFF0000, 0xFF00, 0xFF):
                found.add(visual)
            at += 24
    return found
