"""What every provider promises, the same for each kind."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import AbstractContextManager

import pytest

from sandbox.vfs.provider import FileInfo, Provider, clean


def put(provider: Provider, path: str, content: bytes = b"", mode: int = 0o644) -> None:
    handle = provider.create(path, mode)
    try:
        assert handle.write(memoryview(content), 0) == len(content)
    finally:
        handle.close()


def get(provider: Provider, path: str) -> bytes:
    handle = provider.open(path, os.O_RDONLY)
    try:
        return bytes(handle.read(1 << 20, 0))
    finally:
        handle.close()


def names(provider: Provider, path: str = "/") -> list[str]:
    fixed = {"elsewhere"}  # the router's mount point
    return sorted(entry.name for entry in provider.readdir(path) if entry.name not in fixed)


def refused(number: int) -> AbstractContextManager[object]:
    return pytest.raises(OSError, match=rf"\[Errno {number}\]")


def test_what_is_written_to_a_file_is_read_back(provider: Provider) -> None:
    put(provider, "/a", b"hello", 0o640)
    info = provider.stat("/a")
    assert (get(provider, "/a"), info.size, stat.S_IMODE(info.mode)) == (b"hello", 5, 0o640)
    assert not info.is_dir


def test_writing_beyond_the_end_leaves_zeros_between(provider: Provider) -> None:
    put(provider, "/a", b"ab")
    handle = provider.open("/a", os.O_RDWR)
    handle.write(memoryview(b"z"), 5)
    handle.close()
    assert get(provider, "/a") == b"ab\0\0\0z"


def test_a_read_at_the_end_is_empty_and_one_across_it_is_short(provider: Provider) -> None:
    put(provider, "/a", b"abc")
    handle = provider.open("/a", os.O_RDONLY)
    assert (bytes(handle.read(10, 1)), bytes(handle.read(10, 3)), bytes(handle.read(10, 99))) == (b"bc", b"", b"")
    handle.close()


def test_opening_with_truncation_empties_the_file(provider: Provider) -> None:
    put(provider, "/a", b"abc")
    provider.open("/a", os.O_WRONLY | os.O_TRUNC).close()
    assert provider.stat("/a").size == 0


def test_directories_are_made_listed_and_removed_when_empty(provider: Provider) -> None:
    provider.mkdir("/d", 0o750)
    put(provider, "/d/x")
    assert names(provider) == ["d"]
    assert names(provider, "/d") == ["x"]
    assert provider.stat("/d").is_dir
    with refused(errno.ENOTEMPTY):
        provider.remove("/d")
    provider.remove("/d/x")
    provider.remove("/d")
    assert names(provider) == []


def test_what_does_not_exist_is_said_to_be_missing(provider: Provider) -> None:
    put(provider, "/file")
    for attempt in (provider.stat, provider.remove, lambda path: provider.open(path, os.O_RDONLY)):
        with refused(errno.ENOENT):
            attempt("/nothing")
    with pytest.raises(OSError):
        provider.stat("/file/below")
    with refused(errno.ENOENT):
        list(provider.readdir("/nothing"))
    with refused(errno.ENOTDIR):
        list(provider.readdir("/file"))


def test_what_is_there_is_not_made_again(provider: Provider) -> None:
    put(provider, "/a", b"kept")
    provider.mkdir("/d", 0o755)
    for path in ("/a", "/d"):
        with refused(errno.EEXIST):
            provider.create(path, 0o644)
        with refused(errno.EEXIST):
            provider.mkdir(path, 0o755)
        with refused(errno.EEXIST):
            provider.symlink("x", path)
    assert get(provider, "/a") == b"kept"


def test_rename_moves_and_replaces(provider: Provider) -> None:
    put(provider, "/a", b"1")
    put(provider, "/b", b"2")
    provider.rename("/a", "/b")
    assert (names(provider), get(provider, "/b")) == (["b"], b"1")


def test_a_directory_is_renamed_with_everything_in_it(provider: Provider) -> None:
    provider.mkdir("/d", 0o755)
    provider.mkdir("/d/e", 0o755)
    put(provider, "/d/e/x", b"deep")
    provider.rename("/d", "/new")
    assert get(provider, "/new/e/x") == b"deep"
    with refused(errno.ENOENT):
        provider.stat("/d")


def test_rename_refuses_what_posix_refuses(provider: Provider) -> None:
    provider.mkdir("/d", 0o755)
    provider.mkdir("/full", 0o755)
    put(provider, "/full/x")
    put(provider, "/f")
    for old, new, number in (
        ("/d", "/full", errno.ENOTEMPTY),
        ("/d", "/f", errno.ENOTDIR),
        ("/f", "/d", errno.EISDIR),
        ("/d", "/d/inside", errno.EINVAL),
        ("/nothing", "/x", errno.ENOENT),
    ):
        with refused(number):
            provider.rename(old, new)


def test_links_are_shown_and_not_followed(provider: Provider) -> None:
    provider.symlink("../../etc/passwd", "/l")
    assert provider.readlink("/l") == "../../etc/passwd"
    assert provider.stat("/l").is_symlink
    with pytest.raises(OSError):
        provider.open("/l", os.O_RDONLY)


def test_a_second_name_is_the_same_file(provider: Provider) -> None:
    put(provider, "/a", b"x")
    provider.link("/a", "/b")
    one, two = provider.stat("/a"), provider.stat("/b")
    assert one.nlink == two.nlink == 2
    assert one.ino == two.ino
    provider.remove("/a")
    assert get(provider, "/b") == b"x"


def test_an_open_file_outlives_its_name(provider: Provider) -> None:
    put(provider, "/a", b"still here")
    handle = provider.open("/a", os.O_RDWR)
    provider.remove("/a")
    assert bytes(handle.read(100, 0)) == b"still here"
    assert handle.write(memoryview(b"STILL"), 0) == 5
    assert handle.stat().size == 10
    handle.close()


def test_attributes_can_be_changed(provider: Provider) -> None:
    put(provider, "/a", b"abcdef")
    provider.setattr("/a", mode=0o600, size=3, mtime_ns=1_500_000_000_123_456_789, atime_ns=5)
    info = provider.stat("/a")
    assert (stat.S_IMODE(info.mode), info.size, info.mtime_ns) == (0o600, 3, 1_500_000_000_123_456_789)
    provider.setattr("/a", size=5)
    assert get(provider, "/a") == b"abc\0\0"


def test_names_that_are_not_utf8_work(provider: Provider) -> None:
    name = os.fsdecode(b"\xff\xfe caf\xe9")
    put(provider, f"/{name}", b"x")
    assert names(provider) == [name]
    assert get(provider, f"/{name}") == b"x"


def test_space_is_reported(provider: Provider) -> None:
    space = provider.statfs()
    assert 0 <= space.free <= space.total


@pytest.mark.parametrize(
    ("given", "meant"), [("/", "/"), ("//a///b/", "/a/b"), ("a/./b", "/a/b"), ("", "/"), ("/.", "/")]
)
def test_paths_are_cleaned(given: str, meant: str) -> None:
    assert clean(given) == meant


@pytest.mark.parametrize("path", ["/..", "/a/../b", "/a\0b", "/" + "x" * 256, "/é" + "é" * 200, "/a" * 3000])
def test_paths_no_tree_can_hold_are_refused(path: str) -> None:
    with pytest.raises(OSError):
        clean(path)


def test_a_mode_without_a_type_is_a_plain_file() -> None:
    assert not FileInfo(mode=0o644).is_dir
    assert not FileInfo(mode=0o644).is_symlink


def test_every_public_name_can_be_imported() -> None:
    from sandbox import vfs

    assert [name for name in vfs.__all__ if getattr(vfs, name).__name__ != name] == []
