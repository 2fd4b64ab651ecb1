"""The display inside: starts it with its window manager, and connects to it as an X client."""

from __future__ import annotations

import os
import struct
import time
from typing import TYPE_CHECKING

from sandbox.desktop import programs
from sandbox.desktop.keyboard import Keyboard
from sandbox.desktop.x11 import Display, DisplayLost
from sandbox.errors import SandboxError

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from sandbox.guest.process import Process
    from sandbox.sandbox import Sandbox

START = 60.0  # seconds that the display has to start: an emulated machine is slow
MANAGER = 90.0  # the same for the window manager
VNC = f"{programs.DIRECTORY}/vnc"
_AGAIN = 0.25  # seconds until the window manager is asked again; it has to answer every question in the end
_COOKIE = f"{programs.DIRECTORY}/cookie"
_FAMILY_WILD = 0xFFFF  # in an authority file: matches any host name


class Screen:
    """The sandbox's own display. `environment` has the variables that programs inside need to draw on it."""

    def __init__(self, sandbox: Sandbox, size: str, found: Mapping[str, str]) -> None:
        """Starts it. Raises SandboxError."""
        self._processes: list[Process] = []
        server = next((found[name] for name in ("Xvnc", "Xvfb") if name in found), None)
        if server is None:
            raise SandboxError(
                "there is no display server inside: install Xvnc (Debian: tigervnc-standalone-server) or Xvfb"
            )
        self.shared = server.endswith("Xvnc")  # whether viewers can connect, over VNC
        cookie = os.urandom(16)
        try:
            number = self._start(sandbox, server, size, cookie)
            self.environment = {"DISPLAY": f":{number}", "XAUTHORITY": _COOKIE}
            self.display = Display(_dial(sandbox, f"/tmp/.X11-unix/X{number}"), cookie)
            if "openbox" in found:
                argv = [found["openbox"], "--sm-disable"]
                manager = programs.start(sandbox, argv, self.environment, "windows")
                self._processes.append(manager)
                _await_manager(self.display, manager)
            self.keyboard = Keyboard(self.display)
        except BaseException:
            self.close()
            raise

    def _start(self, sandbox: Sandbox, server: str, size: str, cookie: bytes) -> int:
        programs.make_directory(sandbox)
        programs.write(sandbox, _COOKIE, _authority(cookie))
        argv = [server, "-displayfd", "1", "-auth", _COOKIE, "-nolisten", "tcp", "-nolisten", "local", "-noreset"]
        if self.shared:
            argv += ["-geometry", size, "-depth", "24", "-rfbport", "-1", "-rfbunixpath", VNC]
            # The HTTP server on the host decides who may look: nobody else outside reaches this socket. What is copied
            # inside stays inside, and no viewer changes the screen's size.
            argv += ["-SecurityTypes", "None", "-AcceptSetDesktopSize=0", "-SendCutText=0", "-AcceptCutText=0"]
            argv += ["-SendPrimary=0", "-SetPrimary=0", "-AlwaysShared"]
        else:
            argv += ["-screen", "0", f"{size}x24"]
        process = programs.start(sandbox, argv, {}, "display")
        self._processes.append(process)
        line = programs.first_line(process, START)
        if not line.strip().isdigit() or int(line) > 999:
            problem = programs.complaints(sandbox, "display")
            raise SandboxError("the display inside did not start: {problem}", problem=problem or "no message")
        return int(line)

    def close(self) -> None:
        """Ends it, with every program that draws on it. Idempotent."""
        if (display := getattr(self, "display", None)) is not None:
            display.close()
        while self._processes:
            self._processes.pop().close()


def _await_manager(display: Display, manager: Process) -> None:
    """Waits until the window manager answers: a window that opens while it starts is shown late or not at all.

    If it ends instead, that is no error: it is only needed to move windows.
    """
    window = display.new_window()
    now = asked = time.monotonic()
    end = now + MANAGER
    display.tell_manager(window, "_NET_REQUEST_FRAME_EXTENTS")
    while now < end and not programs.has_ended(manager):
        display.begin()
        if display.property(window, "_NET_FRAME_EXTENTS", 16):
            return
        time.sleep(0.01)
        now = time.monotonic()
        if now - asked > _AGAIN:  # it may not have been listening yet
            display.tell_manager(window, "_NET_REQUEST_FRAME_EXTENTS")
            asked = now


def _dial(sandbox: Sandbox, path: str) -> socket.socket:
    try:
        return sandbox._dial_path(path)
    except OSError as problem:
        raise DisplayLost("the display inside cannot be reached: {problem}", problem=problem) from problem


def _authority(cookie: bytes) -> bytes:
    """An authority file, as xauth writes it, for any display."""

    def counted(data: bytes) -> bytes:
        return struct.pack(">H", len(data)) + data

    return (
        struct.pack(">H", _FAMILY_WILD) + counted(b"") + counted(b"") + counted(b"MIT-MAGIC-COOKIE-1") + counted(cookie)
    )
