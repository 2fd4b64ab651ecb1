"""What a running command offers to whoever started it, whether descriptors cross or not."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Chunk, CommandError, Sandbox
from tests.engines.framed_engine import FramedEngine

KEPT = 10 * 2**20
LISTEN = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)"


@pytest.fixture(params=["descriptors", "frames"])
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Sandbox]:
    if request.param == "frames":
        monkeypatch.setattr("sandbox.sandbox.choose", lambda config: FramedEngine())
    with Sandbox({"engine": "none", "filesystem": {"root": str(tmp_path)}}) as made:
        yield made


def test_the_output_of_a_terminal_comes_in_chunks(sandbox: Sandbox) -> None:
    with sandbox.spawn("stty size; echo err >&2; exit 3", pty=(20, 30)) as process:
        chunks = list(process.chunks())
        assert b"".join(one.data for one in chunks) == b"20 30\r\nerr\r\n"
        assert {one.stream for one in chunks} == {"stdout"}
        assert process.result is not None and process.result.exit_code == 3


def test_waiting_for_a_command_whose_output_nobody_reads_ends(sandbox: Sandbox) -> None:
    with sandbox.spawn("head -c 1000000 /dev/zero; head -c 2000000 /dev/zero >&2; exit 4") as process:
        result = process.wait()
        assert (result.exit_code, len(result.stdout_bytes), len(result.stderr_bytes)) == (4, 1_000_000, 2_000_000)
        assert not result.truncated
        assert len(_all(process, "stdout")) == 1_000_000  # and it can still be read
        assert len(_all(process, "stderr")) == 2_000_000


def test_what_is_collected_is_bounded_and_marked(sandbox: Sandbox) -> None:
    with sandbox.spawn(f"head -c {KEPT + 5000} /dev/zero") as process:
        result = process.wait()
        assert result.truncated
        assert result.stdout_bytes[KEPT:] == b"\n[output cut by sandbox: 5000 more bytes]\n"
        assert _all(process, "stdout") == result.stdout_bytes


def test_a_command_that_leaves_a_fast_writer_behind_ends(tmp_path: Path) -> None:
    with (
        Sandbox({"engine": "none", "filesystem": {"root": str(tmp_path)}}) as sandbox,
        sandbox.spawn("exec 2>/dev/null; yes & exit 5") as process,
    ):
        waited: list[int] = []
        waiting = threading.Thread(target=lambda: waited.append(process.wait().exit_code), daemon=True)
        waiting.start()
        waiting.join(60)
        assert waited == [5]


def test_waiting_for_a_terminal_collects_what_it_shows(sandbox: Sandbox) -> None:
    with sandbox.spawn("echo shown", pty=(20, 30)) as process:
        assert process.wait().stdout == "shown\r\n"


def test_a_wait_that_takes_too_long_leaves_the_command_and_its_output_alone(sandbox: Sandbox) -> None:
    with sandbox.spawn("echo one; read line; echo $line; read line") as process:
        with pytest.raises(TimeoutError):
            process.wait(timeout=0.05)
        process.write(b"two\n")
        seen = b""
        while seen != b"one\ntwo\n":
            seen += process.read()
        process.close_stdin()
        assert process.wait(timeout=30).exit_code == 1


def test_output_is_read_in_one_thread_while_another_waits(sandbox: Sandbox) -> None:
    with sandbox.spawn("seq 200000") as process:
        waiting = threading.Thread(target=process.wait)
        waiting.start()
        output = _all(process, "stdout")
        waiting.join()
    assert output == b"".join(b"%d\n" % number for number in range(1, 200_001))


def test_a_command_that_never_started_says_so_when_it_is_waited_for(sandbox: Sandbox) -> None:
    with pytest.raises(CommandError, match="no such command"), sandbox.spawn(["nowhere"]) as process:
        process.wait()


def test_input_that_nobody_reads_any_more_is_a_broken_pipe(sandbox: Sandbox) -> None:
    with sandbox.spawn("exec <&-; echo closed; sleep 1000") as process:
        assert process.read() == b"closed\n"
        with pytest.raises(BrokenPipeError):
            while True:
                process.write(b"x" * 65536)


def test_output_that_nobody_reads_any_more_is_a_broken_pipe_inside(sandbox: Sandbox) -> None:
    with sandbox._spawn(["yes"]) as process:
        assert process.read(2) == b"y\n"
        assert process.stdout is not None
        os.close(process.stdout)
        process.stdout = None
        assert process.wait().signal == signal.SIGPIPE


def test_a_command_that_is_not_read_waits_and_blocks_nobody_else(sandbox: Sandbox) -> None:
    with sandbox.spawn(["yes"]) as process:
        assert process.read(2) == b"y\n"
        for _ in range(20):
            assert sandbox.exec("echo hello").stdout == "hello\n"
        sandbox.write_file("x", b"y" * 3_000_000)
        assert len(sandbox.read_file("x")) == 3_000_000
        written = sandbox.exec(f"grep wchar /proc/{process.pid}/io").stdout
        assert int(written.split()[1]) < 2**20  # no more is held for it anywhere


def test_a_closed_process_is_killed(sandbox: Sandbox) -> None:
    with sandbox.spawn("trap '' TERM HUP; echo $$; while :; do sleep 1; done") as process:
        pid = process.read().decode().strip()
    assert sandbox.exec(f"while kill -0 {pid} 2>/dev/null; do :; done; echo gone", timeout=20).stdout == "gone\n"


def test_a_port_inside_is_dialled(sandbox: Sandbox) -> None:
    with sandbox.spawn(["python3", "-c", f"{LISTEN}; s.accept()[0].sendall(b'x' * 3000000)"]) as process:
        port = int(process.read())
        with sandbox.dial(port) as connection:
            received = 0
            while piece := connection.recv(65536):
                received += len(piece)
        assert received == 3_000_000
        assert process.wait().exit_code == 0
    with pytest.raises(ConnectionRefusedError):
        sandbox.dial(port)


def test_hanging_up_on_a_port_inside_is_seen_there(sandbox: Sandbox) -> None:
    with sandbox.spawn(["python3", "-c", f"{LISTEN}; c = s.accept()[0]; print(c.recv(9), c.recv(9))"]) as process:
        port = int(process.read())
        with sandbox.dial(port) as connection:
            connection.sendall(b"hello")
            connection.shutdown(socket.SHUT_WR)
            assert process.wait().stdout.strip() == "b'hello' b''"


def test_nothing_is_left_of_commands_files_and_connections(sandbox: Sandbox) -> None:
    def one_of_each() -> None:
        sandbox.exec("cat", stdin="x")
        assert isinstance(next(iter(sandbox.exec_stream("echo a; sleep 1000"))), Chunk)
        with sandbox.spawn("sleep 1000", pty=(20, 30)):
            pass
        sandbox.write_file("x", "y")
        with pytest.raises(ConnectionRefusedError):
            sandbox.dial(9)

    one_of_each()
    sandbox.exec("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        one_of_each()
    while len(os.listdir("/proc/self/fd")) > before:  # the guest still ends what was cut off
        sandbox.exec("true")


def _all(process: object, stream: str) -> bytes:
    data = b""
    while piece := process.read(stream=stream):  # type: ignore[attr-defined]
        data += piece
    return data
