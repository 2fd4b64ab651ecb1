"""A copy-on-write tree behaves as a plain one, and what is beneath is never changed."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sandbox.vfs.memory import MemoryProvider
from sandbox.vfs.overlay import OverlayProvider
from sandbox.vfs.provider import Provider, join
from sandbox.vfs.realfs import RealFSProvider

BASE = {"/a": b"aa", "/b": b"bb", "/d/a": b"da", "/d/d/b": b"ddb", "/e/a": b"ea"}


def filled(provider: MemoryProvider) -> MemoryProvider:
    for path, content in BASE.items():
        provider.write_file(path, content)
    provider.symlink("a", "/l")
    return provider


def tree(provider: Provider, path: str = "/") -> dict[str, object]:
    """Everything below, as plain data."""
    found: dict[str, object] = {}
    for entry in provider.readdir(path):
        place = join(path, entry.name)
        info = provider.stat(place)
        if info.is_dir:
            found[place] = "directory"
            found |= tree(provider, place)
        elif info.is_symlink:
            found[place] = ("link", provider.readlink(place))
        else:
            handle = provider.open(place, os.O_RDONLY)
            found[place] = (stat.S_IMODE(info.mode), bytes(handle.read(1000, 0)))
            handle.close()
    return found


PATHS = st.sampled_from(
    ["/a", "/b", "/d", "/e", "/l", "/d/a", "/d/b", "/d/d", "/d/d/a", "/d/d/b", "/e/a", "/e/b", "/e/d"]
)


class OverlayLikePlain(RuleBasedStateMachine):
    """The same random life for an overlay and for a plain tree with the same beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.lower, self.plain = filled(MemoryProvider()), filled(MemoryProvider())
        self.before = tree(self.lower)
        self.upper = MemoryProvider()
        self.overlay = OverlayProvider(self.upper, self.lower)

    def both(self, act: object) -> None:
        results = []
        for provider in (self.overlay, self.plain):
            try:
                results.append(act(provider) or 0)  # type: ignore[operator]
            except OSError as problem:
                results.append(errno.errorcode[problem.errno or 0])
        assert results[0] == results[1]

    @rule(path=PATHS, content=st.binary(max_size=4))
    def create(self, path: str, content: bytes) -> None:
        def act(provider: Provider) -> None:
            handle = provider.create(path, 0o644)
            handle.write(memoryview(content), 0)
            handle.close()

        self.both(act)

    @rule(path=PATHS, content=st.binary(max_size=4), offset=st.integers(0, 4))
    def write(self, path: str, content: bytes, offset: int) -> None:
        def act(provider: Provider) -> None:
            reader = provider.open(path, os.O_RDONLY)
            writer = provider.open(path, os.O_RDWR)
            writer.write(memoryview(content), offset)
            # Whoever had the file open sees it, also when the write made it change sides.
            assert bytes(reader.read(100, 0)) == bytes(writer.read(100, 0))
            writer.close()
            reader.close()

        self.both(act)

    @rule(path=PATHS)
    def empty(self, path: str) -> None:
        self.both(lambda provider: provider.open(path, os.O_WRONLY | os.O_TRUNC).close())

    @rule(path=PATHS)
    def mkdir(self, path: str) -> None:
        self.both(lambda provider: provider.mkdir(path, 0o755))

    @rule(path=PATHS)
    def remove(self, path: str) -> None:
        self.both(lambda provider: provider.remove(path))

    @rule(old=PATHS, new=PATHS)
    def rename(self, old: str, new: str) -> None:
        self.both(lambda provider: provider.rename(old, new))

    @rule(path=PATHS, mode=st.sampled_from([0o600, 0o755]))
    def chmod(self, path: str, mode: int) -> None:
        self.both(lambda provider: provider.setattr(path, mode=mode))

    @rule(path=PATHS)
    def symlink(self, path: str) -> None:
        self.both(lambda provider: provider.symlink("somewhere", path))

    @rule()
    def reopen(self) -> None:
        """The upper side can be taken up again by another overlay."""
        self.overlay = OverlayProvider(self.upper, self.lower)

    @invariant()
    def same(self) -> None:
        assert tree(self.overlay) == tree(self.plain)
        assert tree(self.lower) == self.before


class TestOverlayLikePlain(OverlayLikePlain.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=100, stateful_step_count=25)


@pytest.mark.soak
class TestOverlayLikePlainForLong(OverlayLikePlain.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=5000, stateful_step_count=40)


def test_a_removed_file_stays_removed_and_can_be_made_again() -> None:
    overlay = OverlayProvider(MemoryProvider(), filled(MemoryProvider()))
    overlay.remove("/a")
    with pytest.raises(FileNotFoundError):
        overlay.stat("/a")
    overlay.create("/a", 0o600).close()
    assert overlay.stat("/a").size == 0


def test_a_directory_made_again_does_not_show_what_was_in_the_old_one() -> None:
    overlay = OverlayProvider(MemoryProvider(), filled(MemoryProvider()))
    overlay.remove("/e/a")
    overlay.remove("/e")
    overlay.mkdir("/e", 0o755)
    assert list(overlay.readdir("/e")) == []


def test_marks_can_be_neither_seen_nor_made() -> None:
    overlay = OverlayProvider(MemoryProvider(), filled(MemoryProvider()))
    overlay.remove("/a")
    assert ".wh.a" not in [entry.name for entry in overlay.readdir("/")]
    with pytest.raises(FileNotFoundError):
        overlay.stat("/.wh.a")
    with pytest.raises(PermissionError):
        overlay.create("/.wh.b", 0o644)
    with pytest.raises(PermissionError):
        overlay.rename("/b", "/.wh.e")
    assert overlay.stat("/b").size == 2


def test_a_file_keeps_its_number_when_it_is_copied_up() -> None:
    overlay = OverlayProvider(MemoryProvider(), filled(MemoryProvider()))
    before = overlay.stat("/a").ino
    overlay.setattr("/a", mode=0o600)
    assert overlay.stat("/a").ino == before != overlay.stat("/b").ino


def test_a_changed_file_keeps_its_extended_attributes() -> None:
    lower = filled(MemoryProvider())
    lower.setxattr("/d/a", "user.origin", b"here", 0)
    overlay = OverlayProvider(MemoryProvider(), lower)
    overlay.setattr("/d/a", mode=0o600)
    overlay.setxattr("/d/a", "user.more", b"there", 0)
    assert overlay.getxattr("/d/a", "user.origin") == b"here"
    assert lower.listxattr("/d/a") == ["user.origin"]


def test_a_copy_that_fails_leaves_the_original_in_sight() -> None:
    lower = MemoryProvider()
    lower.write_file("/big", b"x" * 100_000)
    overlay = OverlayProvider(MemoryProvider(size=50_000), lower)
    with pytest.raises(OSError, match="No space"):
        overlay.open("/big", os.O_RDWR)
    assert overlay.stat("/big").size == 100_000


def test_changes_over_a_host_directory_do_not_reach_it(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("as it was")
    overlay = OverlayProvider(MemoryProvider(), RealFSProvider(str(tmp_path)))
    handle = overlay.open("/x", os.O_RDWR)
    handle.write(memoryview(b"changed!!"), 0)
    handle.close()
    overlay.remove("/x")
    assert (tmp_path / "x").read_text() == "as it was"
    assert os.listdir(tmp_path) == ["x"]
