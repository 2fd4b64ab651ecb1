"""What only engines with walls have: a network of its own, published ports, overlays, providers and hooks."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox import ConfigError, Denied, Sandbox
from sandbox.vfs import MemoryProvider, Provider, ReadonlyProvider

SERVER = """
import socket
from collections.abc import Callable
s = socket.create_server(('127.0.0.1', 8000)); print('up', flush=True)
while True:
    c, _ = s.accept(); c.sendall(b'from inside'); c.close()
"""


ENGINES = ["bubblewrap"]


def test_a_published_port_has_a_real_number(open_sandbox: Any) -> None:
    sb = open_sandbox(network={"publish": ["127.0.0.1:0:8000"]})
    (port,) = sb.ports
    assert (port.address, port.inside, port["inside"]) == ("127.0.0.1", 8000, 8000) and port.port > 0
    with sb.spawn(["python3", "-c", SERVER]) as server:
        assert server.read().startswith(b"up")
        with socket.create_connection((port.address, port.port)) as line:
            assert line.recv(100) == b"from inside"


def test_the_network_is_changed(open_sandbox: Any) -> None:
    sb = open_sandbox()
    sb.update_network({"allowed_hosts": ["example.org"]})
    with pytest.raises(ConfigError, match="allowed_host"):
        sb.update_network({"allowed_host": ["example.org"]})


def test_a_policy_script_that_cannot_be_loaded_changes_nothing(open_sandbox: Any) -> None:
    """It was taken, unless something had been intercepted before, and every later connection failed."""
    sb = open_sandbox()
    for _ in range(2):
        with pytest.raises(ConfigError, match="policy_script"):
            sb.update_network({"policy_script": "def on_request(req"})
    sb.update_network({"policy_script": "def is_host_allowed(host): return False"})


def test_changes_are_shown_applied_and_thrown_away(open_sandbox: Any, project: Path) -> None:
    (project / "kept").write_text("old")
    (project / "gone").write_text("old")
    sb = open_sandbox(filesystem={"overlay": True})
    sb.exec("echo new > kept; echo new > made; rm gone", check=True)
    assert {one.path: one.kind for one in sb.changes()} == {"kept": "modified", "made": "added", "gone": "deleted"}
    (change,) = (one for one in sb.changes() if one.path == "kept")
    assert (change.before.kind, change.after.size) == ("file", 4)
    assert sb.apply(["made"]).applied == ["made"]
    (project / "kept").write_text("changed meanwhile")
    assert [path for path, _ in sb.apply(["kept"]).refused] == ["kept"]
    assert sb.apply(["kept"], overwrite=True).applied == ["kept"]
    assert sb.apply().applied == ["gone"]
    assert (project / "kept").read_text() == "new\n" and not (project / "gone").exists()
    sb.exec("echo more > more")
    sb.discard()
    assert not (project / "more").exists()


def test_changes_can_be_applied_after_the_end(open_sandbox: Any, project: Path) -> None:
    sb = open_sandbox(filesystem={"overlay": True})
    sb.exec("echo new > made", check=True)
    sb.close()
    assert [one.path for one in sb.changes()] == ["made"]
    assert sb.apply().applied == ["made"]
    sb.discard()
    assert (project / "made").read_text() == "new\n"


class Guard:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def before_open(self, path: str, flags: int) -> None:
        self._look(path)

    def before_create(self, path: str, mode: int) -> None:
        self._look(path)

    def after_mkdir(self, path: str, mode: int) -> None:
        self.seen.append(path)

    def _look(self, path: str) -> None:
        if path.endswith(".key"):
            raise Denied("no-keys", "keys stay outside")


def test_hooks_decide_about_files(open_sandbox: Any) -> None:
    guard = Guard()
    sb = open_sandbox(vfs={"mounts": {"/mnt/data": {"type": "memory"}}}, hooks=guard)
    assert "Permission denied" in sb.exec("echo x > /mnt/data/a.key").stderr
    assert sb.exec("echo x > /mnt/data/a; mkdir /mnt/data/d").ok
    assert guard.seen == ["/mnt/data/d"]


class Misspelt:
    def before_opn(self, path: str) -> None: ...


class Foreign:
    def onRequest(self, request: object) -> None: ...


class Typo:
    def on_requst(self, request: object) -> None: ...


class Nothing:
    def look(self) -> None: ...


class NoFunction:
    on_request = "block"


@pytest.mark.parametrize(
    ("hooks", "said"),
    [
        (Misspelt(), "unknown hook 'before_opn'; did you mean 'before_open'"),
        (Typo(), "unknown hook 'on_requst'; did you mean 'on_request'"),
        (Foreign(), "unknown hook 'onRequest'; did you mean 'on_request'"),
        ({"on_request": print}, "not a dict"),
        (Nothing(), "Nothing has no hook"),
        (NoFunction(), "on_request must be a function"),
    ],
)
def test_hooks_that_would_guard_nothing_are_an_error(open_sandbox: Any, hooks: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_sandbox(hooks=hooks)


def test_a_read_only_mount_answers_erofs(open_sandbox: Any, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "f").write_text("x")
    sb = open_sandbox(vfs={"mounts": {"/mnt/shared": {"type": "readonly", "host_path": str(tmp_path / "shared")}}})
    _refuses_every_change(sb, "/mnt/shared")


class ReadOnly(MemoryProvider):
    """Only what a read-only provider must have: the rest is `Provider`'s own."""

    __slots__ = ()
    create, mkdir, remove, rename = Provider.create, Provider.mkdir, Provider.remove, Provider.rename
    symlink, link, setattr = Provider.symlink, Provider.link, Provider.setattr


def test_a_provider_that_only_reads_answers_erofs(project: Path) -> None:
    provider = MemoryProvider()
    provider.write_file("/f", "x")
    provider.__class__ = ReadOnly
    with Sandbox({"filesystem": {"root": str(project)}, "vfs": {"mounts": {"/mnt/shared": provider}}}) as sb:
        assert sb.read_text("/mnt/shared/f") == "x"
        _refuses_every_change(sb, "/mnt/shared")


def test_a_provider_that_was_made_read_only_answers_erofs(project: Path) -> None:
    provider = MemoryProvider()
    provider.write_file("/f", "x")
    mounts = {"/mnt/shared": ReadonlyProvider(provider)}
    with Sandbox({"filesystem": {"root": str(project)}, "vfs": {"mounts": mounts}}) as sb:
        assert sb.read_text("/mnt/shared/f") == "x"
        _refuses_every_change(sb, "/mnt/shared")
        with pytest.raises(OSError) as caught:
            sb.write_file("/mnt/shared/f", b"y")
        assert caught.value.errno == errno.EROFS


def _refuses_every_change(sb: Any, at: str) -> None:
    attempts: dict[str, Callable[[], object]] = {
        "write": lambda: sb.write_file(f"{at}/new", b"x"),
        "mkdir": lambda: sb.mkdir(f"{at}/d", parents=False),
        "remove": lambda: sb.remove(f"{at}/f"),
        "rename": lambda: sb.rename(f"{at}/f", f"{at}/g"),
        "symlink": lambda: sb.symlink("f", f"{at}/l"),
    }
    answers = {}
    for name, attempt in attempts.items():
        with pytest.raises(OSError) as caught:
            attempt()
        answers[name] = errno.errorcode.get(caught.value.errno or 0)
    assert answers == dict.fromkeys(attempts, "EROFS")


def test_reading_a_directory_of_a_provider_is_the_usual_error(open_sandbox: Any) -> None:
    sb = open_sandbox(vfs={"mounts": {"/mnt/data": {"type": "memory"}}}, hooks=Guard())
    sb.mkdir("/mnt/data/d")
    with pytest.raises(IsADirectoryError):
        sb.read_file("/mnt/data/d")
