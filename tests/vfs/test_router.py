"""Several providers in one tree (the specification's sample)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sandbox.vfs.memory import MemoryProvider
from sandbox.vfs.readonly import ReadonlyProvider
from sandbox.vfs.realfs import RealFSProvider
from sandbox.vfs.router import MountRouter


@pytest.fixture
def router(tmp_path: Path) -> MountRouter:
    (tmp_path / "dataset").write_text("data")
    secrets = MemoryProvider()
    secrets.write_file("/ca.crt", "certificate")
    return MountRouter(
        {
            "/workspace": MemoryProvider(),
            "/data": ReadonlyProvider(RealFSProvider(str(tmp_path))),
            "/etc/secrets": ReadonlyProvider(secrets),
        }
    )


def test_each_path_reaches_its_provider(router: MountRouter) -> None:
    router.create("/workspace/x", 0o644).close()
    assert [entry.name for entry in router.readdir("/")] == ["data", "etc", "workspace"]
    assert [entry.name for entry in router.readdir("/etc")] == ["secrets"]
    assert [entry.name for entry in router.readdir("/workspace")] == ["x"]
    assert bytes(router.open("/data/dataset", os.O_RDONLY).read(10, 0)) == b"data"
    assert router.stat("/etc/secrets/ca.crt").size == 11


@pytest.mark.parametrize("path", ["/data/new", "/etc/secrets/new", "/new", "/etc/new"])
def test_read_only_parts_refuse_changes(router: MountRouter, path: str) -> None:
    with pytest.raises(OSError, match="Read-only"):
        router.create(path, 0o644)
    with pytest.raises(OSError, match="Read-only"):
        router.mkdir(path, 0o755)


@pytest.mark.parametrize("path", ["/workspace", "/etc", "/etc/secrets"])
def test_mount_points_cannot_be_removed_or_renamed(router: MountRouter, path: str) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EBUSY)):
        router.remove(path)
    with pytest.raises(OSError, match=os.strerror(errno.EBUSY)):
        router.rename(path, "/workspace/x")


def test_renaming_between_providers_is_another_device() -> None:
    router = MountRouter({"/a": MemoryProvider(), "/b": MemoryProvider()})
    router.create("/a/x", 0o644).close()
    with pytest.raises(OSError, match="cross-device"):
        router.rename("/a/x", "/b/x")


def test_a_name_that_only_begins_like_a_mount_point_is_another(router: MountRouter) -> None:
    with pytest.raises(FileNotFoundError):
        router.stat("/workspace2")


def test_two_providers_files_are_never_taken_for_one() -> None:
    router = MountRouter({"/a": MemoryProvider(), "/b": MemoryProvider()})
    router.create("/a/x", 0o644).close()
    router.create("/b/x", 0o644).close()
    assert router.stat("/a/x").ino != router.stat("/b/x").ino


def test_a_mount_point_hides_what_is_beneath_it() -> None:
    below = MemoryProvider()
    below.write_file("/d/hidden", "x")
    router = MountRouter({"/": below, "/d": MemoryProvider()})
    assert list(router.readdir("/d")) == []
    with pytest.raises(FileNotFoundError):
        router.stat("/d/hidden")


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_TRUNC])
def test_a_provider_that_says_it_is_readonly_is_not_opened_for_writing(flags: int) -> None:
    class Careless(MemoryProvider):
        readonly = True

    careless = Careless()
    careless.write_file("/x", "kept")
    router = MountRouter({"/a": careless, "/b": MemoryProvider()})
    with pytest.raises(OSError) as refused:
        router.open("/a/x", flags)
    assert refused.value.errno == errno.EROFS
    assert bytes(router.open("/a/x", os.O_RDONLY).read(10, 0)) == b"kept"
