"""`browser.vnc_port`: a VNC viewer of the user's own sees the browser's screen, and nobody else's does."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.desktop.vnc_port import VncPort
from sandbox.errors import SandboxError
from tests.ports import unused_port

VERSION = b"RFB 003.008\n"
INIT = b"\x03\x20\x02\x58" + bytes(16) + b"\0\0\0\x02hi"  # 800x600, called "hi"
KEY, PASTE = b"\x04\x01\0\0\0\0\0a", b"\x06\0\0\0\0\0\0\x02hi"


@contextmanager
def shown() -> Iterator[tuple[int, socket.socket]]:
    """A port, and what speaks as the screen behind it."""
    screen, inner = socket.socketpair()
    screen.settimeout(60)
    port = unused_port()
    listening = VncPort(port, lambda: inner, 2**20)
    try:
        yield port, screen
    finally:
        listening.close()
        screen.close()


def received(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := line.recv(size - len(data))):
        data += piece
    return data


def test_a_viewer_of_the_same_user_has_keys_and_no_clipboard() -> None:
    with shown() as (port, screen), socket.create_connection(("127.0.0.1", port), timeout=60) as viewer:
        screen.sendall(VERSION + b"\x01\x01" + bytes(4) + INIT)
        assert received(viewer, 14) == VERSION + b"\x01\x01"
        viewer.sendall(VERSION + b"\x01\x01" + PASTE + KEY)
        assert received(screen, 14 + len(KEY)) == VERSION + b"\x01\x01" + KEY


def test_a_display_that_asks_for_a_password_is_not_shown() -> None:
    with shown() as (port, screen), socket.create_connection(("127.0.0.1", port), timeout=60) as viewer:
        screen.sendall(VERSION + b"\x01\x02")
        assert received(viewer, 100) in (b"", VERSION)


@pytest.mark.root
def test_a_viewer_of_another_user_sees_nothing() -> None:
    with shown() as (port, screen):
        screen.sendall(VERSION)
        curl = [
            "setpriv",
            "--reuid=65534",
            "--clear-groups",
            "curl",
            "-s",
            "--noproxy",
            "*",
            f"telnet://127.0.0.1:{port}",
        ]
        told = subprocess.run(curl, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        assert told.stdout == b""
        mine = ["curl", "-s", "--noproxy", "*", "--max-time", "5", f"telnet://127.0.0.1:{port}"]
        with subprocess.Popen(mine, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as asked:
            assert asked.stdout is not None and asked.stdout.read(4) == b"RFB "


def test_a_port_that_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SandboxError, match="cannot be used"):
        VncPort(taken.getsockname()[1], lambda: taken, 1)


@pytest.mark.desktop
def test_the_browsers_screen_is_drawn_for_a_viewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    port = unused_port()
    browser = {"vnc_port": port, "auto_start": True, "auto_start_timeout": 120}
    config = {"filesystem": {"root": str(tmp_path / "project")}, "desktop": {"size": "640x480"}, "browser": browser}
    with Sandbox(config), socket.create_connection(("127.0.0.1", port), timeout=60) as viewer:
        assert received(viewer, 12) == VERSION
        viewer.sendall(VERSION)
        assert received(viewer, 2) == b"\x01\x01"
        viewer.sendall(b"\x01")
        assert received(viewer, 4) == bytes(4)
        viewer.sendall(b"\x01")  # others may look, too
        size = received(viewer, 24 + len("sandbox"))
        assert (size[:4], size[24:]) == (b"\x02\x80\x01\xe0", b"sandbox")
        viewer.sendall(b"\x03\0" + bytes(4) + b"\x00\x02\x00\x02")  # two pixels by two
        assert received(viewer, 4)[:1] == b"\0"  # a picture
        assert "screen taken over" in (tmp_path / "home" / "audit" / "audit.jsonl").read_text()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=60)
