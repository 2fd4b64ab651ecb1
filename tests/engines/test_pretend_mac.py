"""`Sandbox()` where there is no pidfd, epoll, inotify, memfd, splice, O_PATH or /proc: what a Mac would load and call.

It runs here, so what is shown is that nothing of Linux is needed, not that macOS does the rest.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from sandbox.config import rmtree
from sandbox.engines.launch import reap
from sandbox.errors import SandboxError
from sandbox.host_process import ProcessHandle, parent_and_program
from sandbox.registry.process_identity import identity
from sandbox.rpc.same_user import peer_user
from sandbox.sockets import address_in
from tests.engines import pretend_mac

RUN = """
from sandbox import Sandbox, list_sandboxes, kill_sandbox, get_sandbox
with Sandbox() as sandbox:
    assert sandbox.engine == "seatbelt", sandbox.engine
    assert sandbox.exec("echo out; echo err >&2; exit 3").exit_code == 3
    sandbox.write_file("a.txt", b"content")
    assert sandbox.read_file("a.txt") == b"content"
    assert [one.id for one in list_sandboxes()] == [sandbox.id]
    assert get_sandbox(sandbox.id).status == "running"
    with Sandbox.attach(sandbox.id) as client:
        assert client.exec("cat a.txt").stdout == "content"
print("done")
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    program = tmp_path / "sandbox-exec"
    program.write_text('#!/bin/sh\nshift 3\nexec "$@"\n')
    program.chmod(0o755)
    return program


def as_a_mac(script: str, stand_in: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "project").mkdir()
    with tempfile.TemporaryDirectory(prefix="m", dir="/tmp") as home:  # a socket's path has room for 103 bytes there
        return _as_a_mac(script, stand_in, tmp_path, home)


def _as_a_mac(script: str, stand_in: Path, tmp_path: Path, home: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, pretend_mac.__file__, stand_in],
        input=script,
        cwd=tmp_path / "project",
        env={**os.environ, "SANDBOX_HOME": home, "PYTHONPATH": str(pretend_mac.REPOSITORY / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_sandbox_runs_commands_and_is_reached_from_outside(stand_in: Path, tmp_path: Path) -> None:
    done = as_a_mac(RUN, stand_in, tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_detached_one_is_killed_by_its_id(stand_in: Path, tmp_path: Path) -> None:
    script = """
from sandbox.cli.main import main
assert main(["run", "--detach", "--", "sleep", "100"]) == 0
from sandbox import list_sandboxes
(one,) = list_sandboxes()
assert one.status == "running"
assert main(["kill", one.id]) == 0
assert [one.status for one in list_sandboxes()] == ["stopped"]
assert main(["prune"]) == 0
assert list_sandboxes() == []
print("done")
"""
    done = as_a_mac(script, stand_in, tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["done"]), done.stderr


def test_traffic_is_copied_without_splice(stand_in: Path, tmp_path: Path) -> None:
    script = """
import http.server, threading
class Origin(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(3000000))
        self.end_headers()
        self.wfile.write(b"x" * 3000000)
    def log_message(self, *words): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Origin)
threading.Thread(target=server.serve_forever, daemon=True).start()
from sandbox import Sandbox
network = {"allowed_hosts": ["good.test", "127.0.0.1"]}
with Sandbox({"network": network}, resolve=lambda host, port: ["127.0.0.1"]) as sandbox:
    url = f"http://good.test:{server.server_port}/"
    print(sandbox.exec(f"curl -sS {url} | wc -c").stdout.strip())
    assert "blocked" in sandbox.exec("curl -sS -i http://evil.test/").stdout
"""
    done = as_a_mac(script, stand_in, tmp_path)
    assert (done.returncode, done.stdout) == (0, "3000000\n"), done.stderr


# -- the portable branches, one by one


def test_without_a_pidfd_the_end_of_a_process_is_seen() -> None:
    with subprocess.Popen(["sleep", "100"]) as child:
        handle = ProcessHandle(child.pid, pidfd=False)
        assert not handle.wait(0) and not handle.ended
        handle.send_signal(15)
        assert child.wait() == -15  # reaped: until then it counts as alive
        assert handle.wait(5) and handle.ended
        with pytest.raises(ProcessLookupError):
            handle.send_signal(15)
    with pytest.raises(ProcessLookupError):
        ProcessHandle(child.pid, pidfd=False)


@pytest.mark.parametrize("pidfd", [True, False])
def test_a_wait_for_a_process_can_be_woken(pidfd: bool) -> None:
    woken, wake = os.pipe()
    handle = ProcessHandle(os.getpid(), pidfd=pidfd)
    threading.Timer(0.05, os.write, (wake, b"x")).start()
    assert handle.wait(30, wake=woken)
    assert not handle.ended
    handle.close()
    os.close(woken)
    os.close(wake)


def test_without_a_pidfd_a_child_is_reaped_and_killed_when_it_takes_too_long() -> None:
    for command in (["true"], ["sleep", "100"]):
        pid = os.posix_spawnp(command[0], command, os.environ)
        reap(pid, 0.2, pidfds=False)
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_without_proc_a_process_has_an_identity_until_it_ends() -> None:
    with subprocess.Popen(["sleep", "100"]) as child:
        known = identity(child.pid, proc=False)
        assert known and "\n" not in known and identity(child.pid, proc=False) == known
        child.kill()
        child.wait()
    assert identity(child.pid, proc=False) is None


def test_without_proc_the_parent_and_the_program_are_the_same() -> None:
    assert parent_and_program(os.getpid(), proc=False)[0] == parent_and_program(os.getpid())[0] == os.getppid()
    with subprocess.Popen(["/bin/sleep", "100"]) as child:
        assert parent_and_program(child.pid, proc=False) == parent_and_program(child.pid) == (os.getpid(), "sleep")
        child.kill()


def test_without_proc_a_socket_has_its_real_path_or_none(tmp_path: Path) -> None:
    assert address_in("/Users/ann/.sandbox/vms/vm-1", -1, "socket", proc=False) == "/Users/ann/.sandbox/vms/vm-1/socket"
    with pytest.raises(SandboxError, match="too long for a socket"):
        address_in(f"/Users/{'a' * 90}", -1, "socket", proc=False)


def test_without_proc_a_closed_directory_is_opened_up_and_no_link_followed(tmp_path: Path) -> None:
    closed, elsewhere = tmp_path / "closed", tmp_path / "elsewhere"
    closed.mkdir(0)
    elsewhere.mkdir(0o755)
    (tmp_path / "link").symlink_to(elsewhere)
    parent = os.open(tmp_path, os.O_RDONLY)
    rmtree._open_up(parent, "closed", proc=False)
    assert closed.stat().st_mode & 0o777 == 0o700
    with pytest.raises((OSError, ValueError, NotImplementedError)):  # macOS changes the link itself, Linux cannot
        rmtree._open_up(parent, "link", proc=False)
    os.close(parent)
    assert elsewhere.stat().st_mode & 0o777 == 0o755


class Peer:
    """A socket that answers as macOS does: struct xucred."""

    def __init__(self, version: int, user: int) -> None:
        self.answer = struct.pack("IIh2x16I", version, user, 1, *range(16))

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option, size) == (0, 1, len(self.answer))
        return self.answer


def test_the_peer_of_a_socket_is_read_as_macos_reports_it() -> None:
    assert peer_user(Peer(0, 501), linux=False) == 501  # type: ignore[arg-type]
    with pytest.raises(OSError, match="unknown way"):
        peer_user(Peer(1, 501), linux=False)  # type: ignore[arg-type]
