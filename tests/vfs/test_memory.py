"""Memory has a limit that holds."""

from __future__ import annotations

import os

import pytest

from sandbox.vfs.memory import MemoryProvider
from sandbox.vfs.memory_inode import INODE_COST


def test_a_full_provider_says_so_and_takes_more_after_something_was_removed() -> None:
    provider = MemoryProvider(size=100_000)
    provider.write_file("/a", b"x" * 90_000)
    with pytest.raises(OSError, match="No space"):
        provider.write_file("/b", b"x" * 20_000)
    provider.remove("/b")
    provider.remove("/a")
    provider.write_file("/b", b"x" * 90_000)
    assert provider.statfs().free < 10_000


def test_a_huge_hole_is_refused_rather_than_filled() -> None:
    provider = MemoryProvider(size=1 << 20)
    handle = provider.create("/a", 0o644)
    with pytest.raises(OSError, match="No space"):
        handle.write(memoryview(b"x"), 1 << 60)
    with pytest.raises(OSError, match="No space"):
        handle.setattr(size=1 << 60)
    handle.close()
    assert provider.stat("/a").size == 0


def test_empty_files_use_up_the_limit_too() -> None:
    provider = MemoryProvider(size=INODE_COST * 10)
    with pytest.raises(OSError, match="No space"):
        for number in range(20):
            provider.create(f"/{number}", 0o644).close()
    assert len(list(provider.readdir("/"))) == 10


def test_further_names_of_a_file_use_up_the_limit_too_and_give_it_back() -> None:
    provider = MemoryProvider(size=100_000)
    provider.create("/a", 0o644).close()
    before = provider.statfs()
    with pytest.raises(OSError, match="No space"):
        for number in range(1000):
            provider.link("/a", f"/{number}")
    for entry in provider.readdir("/"):
        if entry.name != "a":
            provider.remove(f"/{entry.name}")
    assert provider.statfs() == before


def test_the_space_of_a_removed_file_comes_back_when_it_is_closed() -> None:
    provider = MemoryProvider(size=1 << 20)
    empty = provider.statfs().free
    provider.write_file("/a", b"x" * 1000)
    handle = provider.open("/a", os.O_RDONLY)
    provider.remove("/a")
    assert provider.statfs().free < empty
    handle.close()
    assert provider.statfs().free == empty


def test_the_host_can_fill_it_and_look_at_it() -> None:
    provider = MemoryProvider()
    provider.write_file("/deep/er/x", "text")
    assert provider.read_file("/deep/er/x") == b"text"
    with pytest.raises(IsADirectoryError):
        provider.read_file("/deep")


def test_extended_attributes_are_kept_within_bounds() -> None:
    provider = MemoryProvider()
    provider.write_file("/a", b"")
    provider.setxattr("/a", "user.x", b"1", os.XATTR_CREATE)
    with pytest.raises(FileExistsError):
        provider.setxattr("/a", "user.x", b"2", os.XATTR_CREATE)
    assert (provider.getxattr("/a", "user.x"), provider.listxattr("/a")) == (b"1", ["user.x"])
    with pytest.raises(OSError, match="No space"):
        provider.setxattr("/a", "user.y", b"x" * 100_000, 0)
    provider.removexattr("/a", "user.x")
    with pytest.raises(OSError, match="No data"):
        provider.getxattr("/a", "user.x")


def test_extended_attributes_count_as_the_size_they_take() -> None:
    provider = MemoryProvider(size=100_000)
    provider.write_file("/a", b"")
    free = provider.statfs().free
    provider.setxattr("/a", "user.x", b"x" * 40_000, 0)
    provider.write_file("/b", b"")
    with pytest.raises(OSError, match="No space"):
        provider.setxattr("/b", "user.x", b"x" * 64_000, 0)
    provider.remove("/b")
    provider.setxattr("/a", "user.x", b"x", 0)
    provider.removexattr("/a", "user.x")
    assert provider.statfs().free == free
    provider.setxattr("/a", "user.x", b"x" * 40_000, 0)
    provider.remove("/a")
    assert provider.statfs().free > free


def test_a_file_can_grow_and_shrink_while_somebody_holds_a_part_of_it() -> None:
    provider = MemoryProvider()
    provider.write_file("/a", b"0123456789")
    handle = provider.open("/a", os.O_RDWR)
    part = handle.read(4, 2)
    handle.setattr(size=3)
    assert bytes(part) == b"2345"
    part = handle.read(3, 0)
    handle.write(memoryview(b"xyz" * 1000), 3)
    assert bytes(part) == b"012"
    assert bytes(handle.read(6, 0)) == b"012xyz"
    handle.close()
