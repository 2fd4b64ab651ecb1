"""Nothing can be changed through a read-only view, by any method there is."""

from __future__ import annotations

import os

import pytest

from sandbox.vfs.memory import MemoryProvider
from sandbox.vfs.readonly import ReadonlyProvider


@pytest.fixture
def below() -> MemoryProvider:
    below = MemoryProvider()
    below.write_file("/a", "kept")
    below.mkdir("/d", 0o755)
    below.symlink("a", "/l")
    below.setxattr("/a", "user.x", b"1", 0)
    return below


CHANGES = {
    "create": ("/new", 0o644),
    "mkdir": ("/new", 0o755),
    "mknod": ("/new", 0o010644),
    "remove": ("/a",),
    "rename": ("/a", "/b"),
    "link": ("/a", "/b"),
    "symlink": ("a", "/b"),
    "setxattr": ("/a", "user.x", b"2", 0),
    "removexattr": ("/a", "user.x"),
}


@pytest.mark.parametrize("method", CHANGES)
def test_every_change_is_refused(below: MemoryProvider, method: str) -> None:
    view = ReadonlyProvider(below)
    with pytest.raises(OSError, match="Read-only"):
        getattr(view, method)(*CHANGES[method])
    with pytest.raises(OSError, match="Read-only"):
        view.setattr("/a", mode=0o777)
    assert below.read_file("/a") == b"kept"


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC])
def test_opening_for_writing_is_refused(below: MemoryProvider, flags: int) -> None:
    with pytest.raises(OSError, match="Read-only"):
        ReadonlyProvider(below).open("/a", flags)
    assert below.read_file("/a") == b"kept"


def test_an_open_file_cannot_be_written_either(below: MemoryProvider) -> None:
    handle = ReadonlyProvider(below).open("/a", os.O_RDONLY)
    with pytest.raises(OSError, match="Read-only"):
        handle.write(memoryview(b"x"), 0)
    with pytest.raises(OSError):
        handle.setattr(size=0)
    assert bytes(handle.read(10, 0)) == b"kept"
    assert handle.stat().size == 4


def test_reading_works_as_below(below: MemoryProvider) -> None:
    view = ReadonlyProvider(below)
    assert [entry.name for entry in view.readdir("/")] == ["a", "d", "l"]
    assert view.readlink("/l") == "a"
    assert view.getxattr("/a", "user.x") == b"1"
    assert view.listxattr("/a") == ["user.x"]
    assert view.readonly
