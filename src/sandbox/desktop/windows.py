"""Lists the open windows. Programs inside choose titles and names, so they are bounded, and control characters are
replaced, before they are shown."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from sandbox.desktop.x11 import DisplayRefused

if TYPE_CHECKING:
    from sandbox.desktop.x11 import Display

MOST_WINDOWS = 256
_MOST_TEXT = 512  # bytes of a title


def list_windows(display: Display) -> list[dict[str, str]]:
    """The open windows, as `{id, title, app}`."""
    found = []
    for window in _windows(display)[:MOST_WINDOWS]:
        try:
            title = _text(display, window, "_NET_WM_NAME") or _text(display, window, "WM_NAME")
            name = display.property(window, "WM_CLASS", _MOST_TEXT).split(b"\0")
        except DisplayRefused:
            continue  # the window was closed meanwhile
        found.append({"id": f"0x{window:x}", "title": title, "app": shown(name[1] if len(name) > 1 else name[0])})
    return found


def _windows(display: Display) -> list[int]:
    """The window manager's list, which leaves out menus and the like; without one, all visible windows with a class."""
    listed = display.property(display.root, "_NET_CLIENT_LIST", 4 * MOST_WINDOWS)
    if listed:
        return list(struct.unpack(f"<{len(listed) // 4}I", listed[: len(listed) // 4 * 4]))
    found = []
    for window in display.top_windows()[-4 * MOST_WINDOWS :]:
        try:
            if display.visible(window) and display.property(window, "WM_CLASS", 1):
                found.append(window)
        except DisplayRefused:
            continue
    return found


def _text(display: Display, window: int, name: str) -> str:
    return shown(display.property(window, name, _MOST_TEXT))


def shown(data: bytes) -> str:
    """Text that is safe to print."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in data.decode("utf-8", "replace"))
