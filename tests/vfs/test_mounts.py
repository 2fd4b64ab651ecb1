"""Directories of every kind in real sandboxes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from sandbox import Sandbox
from sandbox.errors import ConfigError, Denied, WallError
from sandbox.vfs import (
    FileInfo,
    MemoryProvider,
    MountRouter,
    OverlayProvider,
    ReadonlyProvider,
    RealFSProvider,
)
from tests.vfs.fuse.test_mount import GeneratedProvider

pytestmark = pytest.mark.walls

Make = Callable[..., Sandbox]
needs_fuse = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="/dev/fuse cannot be opened here")


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    project.mkdir()
    with ExitStack() as stack:

        def build(mounts: dict[str, object], *, hooks: object = None, **vfs: object) -> Sandbox:
            config = {"filesystem": {"root": str(project)}, "vfs": {"mounts": mounts, **vfs}}
            return stack.enter_context(Sandbox(config, hooks=hooks))

        yield build


def out(sandbox: Sandbox, script: str) -> str:
    result = sandbox.exec(script)
    assert result.exit_code == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture
def host(tmp_path: Path) -> Path:
    place = tmp_path / "host"
    place.mkdir()
    (place / "f").write_text("host\n")
    return place


def test_memory_has_its_size_and_vanishes(make: Make, tmp_path: Path) -> None:
    sandbox = make({"/workspace": {"type": "memory", "size": "1m"}})
    sandbox.write_file("/workspace/x", "kept for now")
    assert out(sandbox, "cat /workspace/x") == "kept for now"
    assert "No space left" in sandbox.exec("head -c 2000000 /dev/zero > /workspace/big").stderr
    assert not (tmp_path / "workspace").exists()


def test_host_directories_are_shown_as_asked(make: Make, host: Path) -> None:
    sandbox = make(
        {"/rw": {"type": "real_fs", "host_path": str(host)}, "/ro": {"type": "readonly", "host_path": str(host)}},
        direct_mounts={"/mnt/data": {"host_path": str(host), "readonly": True}},
    )
    assert out(sandbox, "cat /rw/f /ro/f /mnt/data/f; echo new > /rw/new") == "host\n" * 3
    assert (host / "new").read_text() == "new\n"
    for place in ("/ro", "/mnt/data"):
        assert "Read-only" in sandbox.exec(f"echo x > {place}/f").stderr
        assert "Read-only" in sandbox.exec(f"rm {place}/f").stderr


def test_an_overlay_keeps_changes_to_itself(make: Make, host: Path) -> None:
    lower = {"type": "real_fs", "host_path": str(host)}
    sandbox = make({"/out": {"type": "overlay", "upper": {"type": "memory"}, "lower": lower}})
    assert out(sandbox, "echo more >> /out/f; cat /out/f; rm /out/f; echo new > /out/g; ls /out") == "host\nmore\ng\n"
    assert os.listdir(host) == ["f"]
    assert (host / "f").read_text() == "host\n"


def test_nothing_of_the_making_is_left_in_sight(make: Make, host: Path) -> None:
    lower = {"type": "real_fs", "host_path": str(host)}
    sandbox = make({"/out": {"type": "overlay", "lower": lower}, "/m": {"type": "memory"}})
    assert not [name for name in out(sandbox, "ls -a / /run /dev").split() if "vfs" in name or "fuse" in name]


def test_the_result_says_how_each_directory_is_made(make: Make, host: Path) -> None:
    sandbox = make({"/m": {"type": "memory"}, "/h": {"type": "readonly", "host_path": str(host)}})
    told = subprocess.run(
        [sys.executable, "-m", "sandbox", "get", sandbox.id], capture_output=True, text=True, check=True
    )
    assert json.loads(told.stdout)["mounts"] == {"/m": "tmpfs", "/h": "read-only bind"}


@needs_fuse
def test_a_provider_of_your_own_shows_its_files(make: Make) -> None:
    sandbox = make({"/bucket": GeneratedProvider()})
    assert out(sandbox, "ls /bucket; cat /bucket/report.txt") == "empty\nreport.txt\nfrom a bucket"
    assert sandbox.read_file("/bucket/report.txt") == b"from a bucket"
    assert [entry["name"] for entry in sandbox.list_files("/bucket")] == ["report.txt", "empty"]
    assert "Read-only" in sandbox.exec("touch /bucket/new").stderr
    assert not [name for name in out(sandbox, "ls -a / /dev").split() if "fuse" in name]


@needs_fuse
def test_providers_put_together_as_the_specification_shows(make: Make, host: Path) -> None:
    """The specification's sample: a memory workspace, a read-only config, a copy-on-write layer, routed by path."""
    secrets = MemoryProvider()
    secrets.write_file("/ca.crt", "certificate")
    sandbox = make(
        {
            "/vfs": MountRouter(
                {
                    "/workspace": MemoryProvider(),
                    "/config": ReadonlyProvider(RealFSProvider(str(host))),
                    "/data": OverlayProvider(MemoryProvider(), RealFSProvider(str(host))),
                    "/secrets": ReadonlyProvider(secrets),
                }
            )
        }
    )
    script = "cd /vfs; ls; cat secrets/ca.crt config/f; echo more >> data/f; cat data/f; echo x > workspace/x; cat */x"
    assert out(sandbox, script) == "config\ndata\nsecrets\nworkspace\ncertificatehost\nhost\nmore\nx\n"
    for place in ("config", "secrets", "."):
        assert "Read-only" in sandbox.exec(f"echo x > /vfs/{place}/new").stderr
    assert (host / "f").read_text() == "host\n"


@needs_fuse
def test_the_owner_and_the_tenants_share_a_memory_provider(make: Make) -> None:
    provider = MemoryProvider()
    provider.write_file("/in", "from outside")
    sandbox = make({"/shared": provider})
    assert out(sandbox, "cat /shared/in; echo from inside > /shared/out") == "from outside"
    assert provider.read_file("/out") == b"from inside\n"
    for content in (b"", os.urandom(3_000_000)):
        sandbox.write_file("/shared/large", content, mode=0o600)
        assert provider.read_file("/large") == sandbox.read_file("/shared/large") == content
    with pytest.raises(FileNotFoundError):
        sandbox.read_file("/shared/nothing")
    assert out(sandbox, 'test "$(stat -c %u /shared/out)" = "$(id -u)"') == ""


@needs_fuse
def test_hooks_see_refuse_and_tell(make: Make, host: Path) -> None:
    seen: list[tuple[object, ...]] = []
    events: list[dict[str, object]] = []

    class Hooks:
        def before_open(self, path: str, flags: int) -> None:
            seen.append(("open", path))
            if path.endswith("/secret"):
                raise Denied("secrets", "not for tenants")

        def after_write(self, path: str, count: int) -> None:
            seen.append(("wrote", path, count))

    (host / "secret").write_text("x")
    sandbox = make({"/w": {"type": "memory"}, "/h": {"type": "real_fs", "host_path": str(host)}}, hooks=Hooks())
    sandbox.on_event(events.append)
    written = Event()

    def hear(event: dict[str, Any]) -> None:
        if event["type"] == "file" and event["file"]["op"] == "write":
            written.set()

    sandbox.on_event(hear)
    assert "Permission denied" in sandbox.exec("cat /h/secret").stderr
    assert out(sandbox, "cat /h/f; printf 12345 > /w/x; cat /w/x") == "host\n12345"
    assert ("open", "/h/f") in seen
    assert ("wrote", "/w/x", 5) in seen
    assert written.wait(10)
    files = [event["file"] for event in events if event["type"] == "file"]
    assert {"op": "write", "path": "/w/x", "size": 5} in files


@needs_fuse
def test_a_tenant_cannot_get_out_through_a_hooked_host_directory(make: Make, host: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("outside")

    class Hooks:
        def after_open(self, path: str, flags: int) -> None: ...

    sandbox = make({"/h": {"type": "real_fs", "host_path": str(host)}}, hooks=Hooks())
    (host / "planted").symlink_to(tmp_path / "outside")
    for attempt in ("cat /h/planted", "cat /h/../outside", f"ln -s {tmp_path}/outside /h/l && cat /h/l"):
        assert sandbox.exec(attempt).exit_code != 0
    sandbox.exec("echo x > /h/planted")  # reaches the tenant's own /tmp, if anything
    assert (tmp_path / "outside").read_text() == "outside"
    sandbox.exec("cp /bin/true /h/suid; chmod u+s /h/suid; mknod /h/null c 1 3")
    assert not (host / "suid").stat().st_mode & stat.S_ISUID
    assert not (host / "null").exists()


@needs_fuse
def test_a_provider_that_fails_affects_nobody_else(make: Make) -> None:
    class Bad(MemoryProvider):
        def stat(self, path: str) -> FileInfo:
            if path == "/bad":
                raise RuntimeError("broken")
            return super().stat(path)

    sandbox = make({"/bad": Bad(), "/good": MemoryProvider()})
    assert "Input/output error" in sandbox.exec("cat /bad/bad").stderr
    assert out(sandbox, "echo x > /bad/fine; cat /bad/fine; echo y > /good/y; cat /good/y") == "x\ny\n"


@needs_fuse
def test_closing_ends_the_serving_also_in_the_middle_of_work(make: Make) -> None:
    closed = Event()

    class Told(MemoryProvider):
        def close(self) -> None:
            closed.set()

    sandbox = make({"/m": Told()})
    process = sandbox.spawn("while :; do echo x > /m/x; cat /m/x; done > /dev/null")
    sandbox.close()
    assert closed.is_set()
    process.close()


@pytest.mark.skipif(os.access("/dev/fuse", os.R_OK | os.W_OK), reason="/dev/fuse can be opened here")
def test_without_the_device_a_hooked_mount_is_an_error_that_says_how_to_allow_it(make: Make) -> None:
    with pytest.raises(WallError, match="chmod 0666 /dev/fuse"):
        make({"/m": MemoryProvider()})
    assert out(make({"/m": {"type": "memory"}}), "echo works > /m/x; cat /m/x") == "works\n"


@pytest.mark.parametrize("asked", [{"vfs": {"mounts": {"/m": {"type": "memory"}}}}, {"filesystem": {"overlay": True}}])
def test_without_walls_there_is_nowhere_to_put_them(
    asked: dict[str, dict[str, object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    config = {**asked, "mode": "off", "filesystem": {"root": str(tmp_path), **asked.get("filesystem", {})}}
    with pytest.raises(ConfigError, match="needs isolation"):
        Sandbox(config)
