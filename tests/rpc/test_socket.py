"""The socket of a living sandbox: attach, and who may."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sandbox import NotFound, Sandbox, SandboxClosed, SandboxError, kill_vm
from sandbox.client import Client, attach
from sandbox.rpc.errors import RpcError
from sandbox.rpc.remote import RemoteProcess
from tests.sandboxes import address

pytestmark = pytest.mark.walls


def test_attaching_enters_the_same_sandbox(home: Path) -> None:
    with Sandbox() as sandbox:
        sandbox.write_file("/tmp/note", "left here")
        with Sandbox.attach(sandbox.id) as attached:
            assert attached.read_file("/tmp/note") == b"left here"
            assert attached.exec("cat /tmp/note").stdout == "left here"
        assert sandbox.exec("true").exit_code == 0, "leaving does not end it"


def test_a_client_attaches_to_another_clients_sandbox(rpc: list[str]) -> None:
    with Client(command=rpc) as owner, attach(owner.id[3:]) as other:
        other.write_file("/tmp/note", "x")
        assert owner.read_file("/tmp/note") == b"x"


def test_attaching_to_what_does_not_run_says_so(home: Path) -> None:
    with pytest.raises(NotFound):
        attach("vm-00000000")
    with Sandbox() as sandbox:
        pass
    with pytest.raises(SandboxError, match="stopped"):
        attach(sandbox.id)


def test_a_deep_home_does_not_make_the_sockets_address_too_long(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / ("d" * 100) / ("e" * 100)))
    with Sandbox() as sandbox, attach(sandbox.id) as attached:
        assert attached.exec("echo in").stdout == "in\n"


def test_leaving_ends_what_one_started_and_nothing_else(home: Path) -> None:
    with Sandbox() as sandbox, sandbox.spawn("trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done") as kept:
        assert kept.read() == b"up\n"
        attached = attach(sandbox.id)
        left = attached.spawn("echo $$; exec sleep 1000")
        pid = next(left.chunks()).data.decode().strip()
        attached.close()
        while sandbox.exec(["kill", "-0", pid]).exit_code == 0:
            pass
        kept.signal(15)
        assert kept.wait().exit_code == 3


def test_a_kept_terminal_outlives_who_left_it_and_shows_what_it_showed(home: Path) -> None:
    with Sandbox() as sandbox:
        with attach(sandbox.id) as first:
            shell = first.spawn("exec sh", pty=(24, 80), keep="main")
            assert isinstance(shell, RemoteProcess) and not shell.joined
            shell.write(b"WHO=me; echo remember-$WHO\n")
            output = b""
            for chunk in shell.chunks():
                output += chunk.data
                if b"remember-me" in output:
                    break
        with attach(sandbox.id) as second:
            shell = second.spawn("exec sh", pty=(24, 80), keep="main")
            assert isinstance(shell, RemoteProcess) and shell.joined
            shell.write(b"echo still-$WHO; exit 6\n")
            result = shell.wait()
            assert result.exit_code == 6
            assert "remember-me" in result.stdout and "still-me" in result.stdout


def test_the_reader_of_a_kept_terminal_learns_that_it_was_left(home: Path) -> None:
    with Sandbox() as sandbox, attach(sandbox.id) as client:
        shell = client.spawn("exec sh", pty=(24, 80), keep="main")
        assert isinstance(shell, RemoteProcess)
        shell.leave()
        with pytest.raises(RpcError, match="keeps running"):
            shell.wait()
        with client.spawn("exec sh", pty=(24, 80), keep="main") as again:
            assert isinstance(again, RemoteProcess) and again.joined


def test_killing_over_the_socket_does_not_kill_the_program_that_owns_the_sandbox(home: Path) -> None:
    with Sandbox() as sandbox:
        kill_vm(sandbox.id)
        with pytest.raises(SandboxClosed):
            sandbox.exec("true")


def test_an_attached_client_learns_that_the_sandbox_ended(home: Path) -> None:
    sandbox = Sandbox()
    attached = attach(sandbox.id)
    stream = attached.exec_stream("echo up; sleep 1000")
    next(stream)
    sandbox.close()
    with pytest.raises(SandboxClosed):
        list(stream)
    attached.close()


@pytest.mark.root
def test_another_user_cannot_speak_on_it_even_where_permissions_would_let_them(home: Path) -> None:
    with Sandbox() as sandbox:
        path = home / "vms" / sandbox.id / "socket"
        for above in (path, *path.parents):
            if above.owner() == "root" and Path(tempfile.gettempdir()) in above.parents:
                above.chmod(stat.S_IMODE(above.stat().st_mode) | 0o777)
        script = f"""
import os, socket
os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
line = socket.socket(socket.AF_UNIX); line.connect({str(path)!r})
try:
    line.sendall(b'{{"jsonrpc": "2.0", "method": "exec", "params": {{"command": "true"}}, "id": 1}}\\n')
    print(len(line.recv(100)))
except (BrokenPipeError, ConnectionResetError):
    print(0)
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout == "0\n"


def test_a_second_create_on_the_socket_is_refused(home: Path) -> None:
    with Sandbox() as sandbox, attach(sandbox.id) as client, pytest.raises(RpcError, match="sandbox here"):
        client._connection.call("create", {})


def test_a_connection_that_says_nothing_blocks_nobody_else(home: Path) -> None:
    with Sandbox() as sandbox, socket.socket(socket.AF_UNIX) as silent:
        with address(home / "vms" / sandbox.id / "socket") as name:
            silent.connect(name)
        with attach(sandbox.id) as client:
            assert client.exec("true").exit_code == 0
