"""Nothing leads out of the directory that was given."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from threading import Event, Thread

import pytest

from sandbox.vfs.realfs import RealFSProvider


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def test_only_the_users_own_attributes_are_there(place: Path) -> None:
    (place / "file").write_text("")
    (place / "link").symlink_to("file")
    provider = RealFSProvider(str(place))
    provider.setxattr("/file", "user.x", b"1", os.XATTR_CREATE)
    assert os.getxattr(place / "file", "user.x") == b"1"
    assert (provider.listxattr("/file"), provider.getxattr("/file", "user.x")) == (["user.x"], b"1")
    for name in ("security.capability", "trusted.overlay.opaque", "system.posix_acl_access", "user"):
        with pytest.raises(OSError, match="not supported"):
            provider.setxattr("/file", name, b"1", 0)
        with pytest.raises(OSError, match="not supported"):
            provider.getxattr("/file", name)
    with pytest.raises(OSError, match="not supported"):
        provider.setxattr("/link", "user.x", b"2", 0)
    assert provider.listxattr("/link") == []
    provider.removexattr("/file", "user.x")
    assert os.listxattr(place / "file") == []


@pytest.mark.parametrize(
    "path", ["/../secret", "/up/secret", "/absolute/secret", "/link", "/proc/self/root/etc/passwd", "/chain/secret"]
)
def test_no_path_or_link_leads_out(place: Path, path: str) -> None:
    (place / "up").symlink_to("..")
    (place / "absolute").symlink_to(place.parent / "outside")
    (place / "link").symlink_to("../secret")
    (place / "proc").symlink_to("/proc")
    (place / "chain").symlink_to("up")
    provider = RealFSProvider(str(place))
    for attempt in (
        lambda: provider.open(path, os.O_RDONLY),
        lambda: provider.open(path, os.O_RDWR | os.O_TRUNC),
        lambda: provider.setattr(path, size=0),
        lambda: provider.create(path + "/new", 0o644),
        lambda: provider.create(path, 0o644),
    ):
        with pytest.raises(OSError):
            attempt()
    assert (place.parent / "secret").read_text() == "secret"
    assert (place.parent / "outside/secret").read_text() == "secret"


@pytest.mark.parametrize("link", ["/up", "/absolute"])
def test_changing_through_a_link_to_a_directory_is_refused(place: Path, link: str) -> None:
    (place / "up").symlink_to("..")
    (place / "absolute").symlink_to(place.parent / "outside")
    (place / "mine").write_text("mine")
    provider = RealFSProvider(str(place))
    for attempt in (
        lambda: provider.mkdir(f"{link}/d", 0o755),
        lambda: provider.remove(f"{link}/secret"),
        lambda: provider.rename("/mine", f"{link}/taken"),
        lambda: provider.rename(f"{link}/secret", "/taken"),
        lambda: provider.link(f"{link}/secret", "/taken"),
        lambda: provider.link("/mine", f"{link}/taken"),
        lambda: provider.symlink("x", f"{link}/l"),
        lambda: list(provider.readdir(link)),
        lambda: provider.readlink(f"{link}/secret"),
    ):
        with pytest.raises(OSError):
            attempt()
    assert sorted(os.listdir(place.parent)) == ["outside", "root", "secret"]


def test_a_directory_swapped_for_a_link_in_a_race_never_shows_the_outside(place: Path) -> None:
    (place / "d").mkdir()
    (place / "d/secret").write_text("public")
    (place / "aside").symlink_to("../outside")
    provider, stop = RealFSProvider(str(place)), Event()

    def swap() -> None:
        root = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        while not stop.is_set():
            os.rename("d", "t", src_dir_fd=root, dst_dir_fd=root)
            os.rename("aside", "d", src_dir_fd=root, dst_dir_fd=root)
            os.rename("d", "aside", src_dir_fd=root, dst_dir_fd=root)
            os.rename("t", "d", src_dir_fd=root, dst_dir_fd=root)
        os.close(root)

    thread = Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for turn in range(300_000):
            if turn >= 3000 and "public" in seen:
                break
            try:
                handle = provider.open("/d/secret", os.O_RDONLY)
            except OSError as problem:
                seen.add(errno.errorcode[problem.errno or 0])
            else:
                seen.add(bytes(handle.read(100, 0)).decode())
                handle.close()
    finally:
        stop.set()
        thread.join()
    assert "secret" not in seen
    assert "public" in seen


def test_links_of_a_tenant_stay_links(place: Path) -> None:
    provider = RealFSProvider(str(place))
    provider.symlink("/etc/passwd", "/l")
    assert os.readlink(place / "l") == "/etc/passwd"
    provider.setattr("/l", mtime_ns=1, atime_ns=1)
    assert os.stat("/etc/passwd").st_mtime_ns != 1
    with pytest.raises(OSError):
        provider.setattr("/l", mode=0o777)


def test_nothing_becomes_setuid_or_a_device(place: Path) -> None:
    provider = RealFSProvider(str(place))
    provider.create("/f", 0o4755).close()
    assert not (place / "f").stat().st_mode & stat.S_ISUID
    with pytest.raises(PermissionError):
        provider.setattr("/f", mode=0o4755)
    with pytest.raises(PermissionError):
        provider.mknod("/n", stat.S_IFCHR | 0o666)
    with pytest.raises(PermissionError):
        provider.setattr("/f", uid=12345)


def test_fifos_and_devices_of_the_host_are_not_opened(place: Path) -> None:
    os.mkfifo(place / "fifo")
    provider = RealFSProvider(str(place))
    with pytest.raises(OSError, match=os.strerror(errno.ENXIO)):
        provider.open("/fifo", os.O_RDONLY)


def test_the_modes_that_were_asked_for_do_not_depend_on_our_umask(place: Path) -> None:
    provider = RealFSProvider(str(place))
    before = os.umask(0o077)
    try:
        provider.create("/f", 0o666).close()
        provider.mkdir("/d", 0o777)
    finally:
        os.umask(before)
    assert [stat.S_IMODE((place / name).stat().st_mode) for name in "fd"] == [0o666, 0o777]
