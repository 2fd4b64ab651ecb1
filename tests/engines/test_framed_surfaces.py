"""`sandbox run`, its terminal, and the RPC server, over an engine whose descriptors do not cross."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.client import Client
from tests.cli.person import Person
from tests.cli.test_suspend import Shell
from tests.engines.framed_engine import FramedEngine

PROGRAM = [sys.executable, str(Path(__file__).with_name("framed_cli.py"))]
RUN = ("run", "--mode", "off", "--")


@pytest.fixture(autouse=True)
def framed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.sandbox.choose", lambda config: FramedEngine())
    monkeypatch.setattr("tests.cli.person.program", lambda: PROGRAM)


def run(*words: str, cwd: Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*PROGRAM, *RUN, *words], cwd=cwd, input=given, capture_output=True, check=False)


def test_a_command_uses_the_callers_streams_and_its_status_is_returned(tmp_path: Path) -> None:
    done = run("sh", "-c", "cat; echo err >&2; exit 7", cwd=tmp_path, given=b"x" * 1_000_000)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"x" * 1_000_000, b"err\n")


def test_output_and_errors_in_one_pipe_keep_their_order(tmp_path: Path) -> None:
    writes = "import os\nfor n in range(500): os.write(1 + n % 2, b'%d\\n' % n)"
    command = [*PROGRAM, *RUN, sys.executable, "-c", writes]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert (done.returncode, done.stdout.split()) == (0, [b"%d" % n for n in range(500)])


def test_a_file_can_be_input_and_output(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"in\n" * 100_000)
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as target:
        command = [*PROGRAM, *RUN, "cat"]
        assert subprocess.run(command, cwd=tmp_path, stdin=source, stdout=target, check=False).returncode == 0
    assert (tmp_path / "out").read_bytes() == b"in\n" * 100_000


def test_a_signal_reaches_the_command(tmp_path: Path) -> None:
    loop = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen([*PROGRAM, *RUN, "sh", "-c", loop], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == b"caught\n"
        assert process.wait() == 5


def test_a_person_at_a_terminal_gets_a_terminal(tmp_path: Path) -> None:
    with Person(*RUN, "sh", "-c", "stty size; tty; read x; echo got $x; exit 9", cwd=tmp_path) as person:
        assert person.sees("/dev/pts/")
        person.types("typed\n")
        assert person.sees("got typed")
        assert person.status() == 9


def test_ctrl_z_and_fg_work_at_a_terminal(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    try:
        shell.types(shlex.join([*PROGRAM, *RUN, "cat"]) + "\n")
        shell.types("first\n")
        shell.sees("first\r\nfirst\r\n")
        shell.types("\x1a")
        shell.sees("Stopped")
        shell.sees("<prompt>")
        shell.types("fg\n")
        shell.sees("\n")
        shell.types("second\n")
        shell.sees("second\r\nsecond\r\n")
        shell.types("\x04")
        shell.sees("<prompt>")
    finally:
        shell.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with Sandbox({"engine": "none", "filesystem": {"root": str(tmp_path)}}) as sandbox:
        client = Sandbox.attach(sandbox.id)
        yield client
        client.close()


def test_a_client_runs_commands(client: Client) -> None:
    done = client.exec("cat; echo err >&2; exit 3", stdin=b"x" * 500_000)
    assert (done.stdout_bytes, done.stderr, done.exit_code) == (b"x" * 500_000, "err\n", 3)
    with client.spawn(["sed", "-u", "s/^/> /"]) as process:
        chunks = process.chunks()
        process.write(b"hello\n")
        assert next(iter(chunks)).data == b"> hello\n"
        process.close_stdin()
        assert list(chunks) == []


def test_a_client_has_a_terminal(client: Client) -> None:
    with client.spawn("stty size; read x; echo got $x", pty=(20, 30)) as process:
        seen = b""
        chunks = process.chunks()
        while b"20 30" not in seen:
            seen += next(chunks).data
        process.write(b"typed\n")
        seen += b"".join(one.data for one in chunks)
        assert b"got typed" in seen


def test_a_client_reads_and_writes_files(client: Client) -> None:
    content = os.urandom(5_000_000)
    client.write_file("big", content)
    assert client.read_file("big") == content
    client.write_file("empty", b"")
    assert client.read_file("empty") == b""
    with pytest.raises(FileNotFoundError):
        client.read_file("nowhere")
