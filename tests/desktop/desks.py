"""A sandbox with a desktop, and programs on it to look at."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    with Sandbox({"filesystem": {"root": str(project)}, "desktop": {"size": "800x600"}}) as sandbox:
        yield sandbox


def until(true: Callable[[], object], seconds: float = 90.0) -> None:
    """Waits for what programs inside do in their own time."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def editor(sandbox: Sandbox, file: str, seconds: float = 30.0) -> None:
    """A window that writes to `file` what is typed into it, until Ctrl-D."""
    argv = ["xterm", "-T", file, "-geometry", "120x40+0+0", "-e", f"cat > {file}"]
    sandbox.desktop.start()
    sandbox.spawn(argv, keep=f"editor-{Path(file).name}")
    until(lambda: sandbox.exists(file) and any(one.title == file for one in sandbox.desktop.windows()), seconds)
    sandbox.desktop.click(400, 300)


def pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and the rows of a PNG as we write it: read strictly, by this test's own lines."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", png, at + 8 + length)[0] == zlib.crc32(kind + data)
        chunks[kind] = data
        at += 12 + length
    width, height, bits, colour = struct.unpack_from(">IIBB", chunks[b"IHDR"])
    assert (bits, colour) == (8, 2)
    raw = zlib.decompress(chunks[b"IDAT"])
    rows = [raw[row * (3 * width + 1) :][: 3 * width + 1] for row in range(height)]
    assert all(row[0] == 0 for row in rows)
    return width, height, [row[1:] for row in rows]


def colour(png: bytes, x: int, y: int) -> tuple[int, int, int]:
    """One pixel's red, green and blue."""
    row = pixels(png)[2][y]
    return row[3 * x], row[3 * x + 1], row[3 * x + 2]
