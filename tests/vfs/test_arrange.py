"""Which directory is made by the kernel and which through FUSE, as a table."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.config.model import Vfs
from sandbox.errors import ConfigError, WallError
from sandbox.plan.mount_operations import Operation, Resize
from sandbox.vfs.arrange import Arrangement, arrange, overlay_project, take_providers
from sandbox.vfs.memory import MemoryProvider
from sandbox.vfs.router import MountRouter

HAS_FUSE = os.access("/dev/fuse", os.R_OK | os.W_OK)
needs_fuse = pytest.mark.skipif(not HAS_FUSE, reason="/dev/fuse cannot be opened here")


class Hooks:
    def after_write(self, path: str, count: int) -> None: ...


def vfs(mounts: dict[str, object], direct: dict[str, object] | None = None) -> Vfs:
    return Vfs.read({"mounts": mounts, "direct_mounts": direct or {}})


def kinds(operations: list[Operation]) -> list[str]:
    return [one.kind for one in operations]


@pytest.fixture
def host(tmp_path: Path) -> str:
    return str(tmp_path)


def test_without_hooks_the_kernel_does_everything(host: str) -> None:
    plan = arrange(
        vfs(
            {
                "/memory": {"type": "memory", "size": "1m"},
                "/real": {"type": "real_fs", "host_path": host},
                "/view": {"type": "readonly", "host_path": host},
                "/view2": {"type": "real_fs", "host_path": host, "readonly": True},
                "/over": {"type": "overlay", "lower": {"type": "real_fs", "host_path": host}},
            },
            {"/direct": {"host_path": host, "readonly": True}},
        )
    )
    assert plan.ways == {
        "/direct": "read-only bind",
        "/memory": "tmpfs",
        "/over": "overlayfs",
        "/real": "bind",
        "/view": "read-only bind",
        "/view2": "read-only bind",
    }
    assert plan.served == {}
    assert plan.device is None
    assert sorted(plan.writable) == ["/memory", "/over", "/real"]
    assert (host, "/real", True) in plan.binds
    assert (host, "/view", False) in plan.binds
    (resized,) = [one for one in plan.layers if isinstance(one, Resize)]
    assert (resized.path, resized.size) == ("/memory", 1 << 20)


def test_an_overlay_is_mounted_and_what_it_is_made_of_taken_away(host: str) -> None:
    plan = arrange(vfs({"/o": {"type": "overlay", "lower": {"type": "real_fs", "host_path": host}}}))
    assert kinds(plan.layers) == ["overlay", "umount", "umount"]
    (lower,) = [target for source, target, _ in plan.binds if source == host]
    ((upper, _),) = plan.scratch
    overlay = plan.layers[0].wire()
    assert overlay["lower"] == lower.encode()
    assert overlay["upper"] == f"{upper}/upper".encode()
    assert {one.path for one in plan.layers[1:]} == {lower, upper}


@needs_fuse
def test_with_hooks_the_mounts_go_through_python_and_direct_mounts_do_not(host: str) -> None:
    mounts: dict[str, object] = {"/memory": {"type": "memory"}, "/real": {"type": "real_fs", "host_path": host}}
    plan = arrange(vfs(mounts, {"/d": {"host_path": host}}), hooks=Hooks())
    assert plan.ways == {"/d": "bind", "/memory": "FUSE", "/real": "FUSE"}
    assert set(plan.served) == {"fuse:0", "fuse:1"}
    # Mounted after everything that could look inside; the device is taken away again.
    assert kinds(plan.fuse) == ["fuse", "fuse", "umount"]


def test_hooks_for_other_things_than_files_change_nothing() -> None:
    class Network:
        def on_request(self, request: object) -> None: ...

    assert arrange(vfs({"/m": {"type": "memory"}}), hooks=Network()).ways == {"/m": "tmpfs"}


@needs_fuse
def test_a_provider_of_your_own_is_served_and_the_rest_stays_with_the_kernel() -> None:
    config, own = take_providers({"vfs": {"mounts": {"/mine": MemoryProvider(), "/m": {"type": "memory"}}}})
    assert config["vfs"]["mounts"] == {"/mine": {"type": "custom"}, "/m": {"type": "memory"}}
    assert arrange(Vfs.read(config["vfs"]), own).ways == {"/m": "tmpfs", "/mine": "FUSE"}


@needs_fuse
def test_what_lies_inside_a_served_directory_is_routed_within_it(host: str) -> None:
    mounts: dict[str, object] = {"/w": {"type": "custom"}, "/w/data": {"type": "readonly", "host_path": host}}
    plan = arrange(vfs(mounts, {"/w/d": {"host_path": host}}), {"/w": MemoryProvider()})
    assert plan.ways == {"/w": "FUSE", "/w/d": "FUSE", "/w/data": "FUSE"}
    (served,) = plan.served.values()
    assert isinstance(served, MountRouter)
    assert [entry.name for entry in served.readdir("/")] == ["d", "data"]


@pytest.mark.parametrize(
    ("mounts", "words"),
    [
        ({"/": {"type": "memory"}}, "is reserved for the sandbox itself"),
        ({"/proc/x": {"type": "memory"}}, "is reserved for the sandbox itself"),
        ({"relative": {"type": "memory"}}, "absolute path"),
        ({"/a/../b": {"type": "memory"}}, "absolute path"),
        ({"/a": {"type": "real_fs"}}, "needs `host_path`"),
        ({"/a": {"type": "real_fs", "host_path": "/nowhere/at/all"}}, "not a directory"),
        ({"/a": {"type": "overlay"}}, "needs `lower`"),
        ({"/a": {"type": "overlay", "lower": {"type": "real_fs", "host": "/x"}}}, "unknown key"),
        ({"/a": {"type": "custom"}}, "needs a provider object"),
        (
            {"/a": {"type": "overlay", "lower": {"type": "real_fs", "host_path": "/usr"}}, "/a/b": {"type": "memory"}},
            "inside the overlay",
        ),
    ],
)
def test_what_is_invalid_is_refused_with_its_place(mounts: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        arrange(vfs(mounts))
    assert caught.value.path.startswith("vfs.mounts.")


def test_the_same_place_twice_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="mounted twice"):
        arrange(vfs({"/a": {"type": "memory"}}, {"/a/": {"host_path": host}}))


@pytest.mark.skipif(HAS_FUSE, reason="/dev/fuse can be opened here")
def test_where_fuse_cannot_be_had_only_what_needs_it_fails() -> None:
    assert arrange(vfs({"/m": {"type": "memory"}})).ways == {"/m": "tmpfs"}
    with pytest.raises(WallError, match="/dev/fuse"):
        arrange(vfs({"/m": {"type": "memory"}}), hooks=Hooks())


def test_an_overlay_project_is_mounted_before_anything_looks_into_it() -> None:
    plan = Arrangement()
    overlay_project(plan, "/home/me/a:long,name" * 20, "/state")
    overlay = plan.layers[0].wire()
    assert overlay["path"] == b"/home/me/a:long,name" * 20
    # The kernel takes options of 255 bytes, and splits some at colons.
    for key in ("lower", "upper", "work"):
        value = overlay[key]
        assert isinstance(value, bytes)
        assert len(value) < 64
        assert b":" not in value
