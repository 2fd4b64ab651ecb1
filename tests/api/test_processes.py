"""Running commands, by every surface and on every engine."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from sandbox import CommandError, InvalidArgument, NotFound, Process, SandboxClosed
from tests.patience import given_time


def test_a_process_is_talked_to(sb: Any) -> None:
    with sb.spawn("read name; echo hello $name; read rest; echo $rest >&2; exit 5") as process:
        assert process.pid > 1
        process.write(b"you\n")
        assert process.read() == b"hello you\n"
        process.write(b"no\n")
        assert process.read(stream="stderr") == b"no\n"
        assert process.wait(60).exit_code == 5
        assert process.result.exit_code == 5
        assert process.read() == b""


def test_input_ends_when_it_is_closed(sb: Any) -> None:
    with sb.spawn(["wc", "-c"]) as process:
        process.write(b"x" * 3_000_000)
        process.close_stdin()
        assert process.wait(60).stdout.strip() == "3000000"


def test_wait_collects_more_than_any_pipe_holds(sb: Any) -> None:
    with sb.spawn("head -c 3000000 /dev/zero; head -c 1000000 /dev/zero >&2") as process:
        result = process.wait()
        assert (len(result.stdout_bytes), len(result.stderr_bytes)) == (3_000_000, 1_000_000)
        assert process.wait().stdout_bytes == result.stdout_bytes


def test_wait_takes_seconds_and_what_came_meanwhile_is_not_lost(sb: Any) -> None:
    with sb.spawn("echo before; read x; echo after") as process:
        with pytest.raises(TimeoutError):
            process.wait(0.3)
        process.write(b"\n")
        assert process.wait(60).stdout == "before\nafter\n"


def test_wait_has_what_nobody_has_read(sb: Any) -> None:
    with sb.spawn("printf abc; read x; printf def") as process:
        assert process.read(2) == b"ab"
        process.write(b"\n")
        assert process.wait(60).stdout == "cdef"


def test_chunks_come_until_the_end_and_leave_input_open(sb: Any) -> None:
    with sb.spawn("echo first; read x; echo $x >&2") as process:
        chunks = process.chunks()
        assert next(chunks).data == b"first\n"
        process.write(b"second\n")
        rest = list(chunks)
        assert [(one.stream, one.data) for one in rest] == [("stderr", b"second\n")]
        assert process.result.exit_code == 0


def test_a_terminal_gives_chunks_and_knows_its_size(sb: Any) -> None:
    script = 'stty size; until [ "$(stty size)" = "20 60" ]; do :; done; echo resized'
    with sb.spawn(script, pty=(31, 101)) as process:
        chunks = process.chunks()
        seen = b""
        while b"31 101" not in seen:
            seen += next(chunks).data
        process.resize(20, 60)
        assert b"resized" in b"".join(one.data for one in chunks)
        assert process.result.exit_code == 0


def test_a_terminal_has_one_stream_and_its_input_ends_too(sb: Any) -> None:
    with sb.spawn("echo up >&2; cat; echo bye", pty=(24, 80)) as process:
        assert process.read(stream="stderr").startswith(b"up")
        process.close_stdin()
        assert b"bye" in process.wait(60).stdout_bytes


def test_signals_reach_it_and_do_nothing_after_its_end(sb: Any) -> None:
    with sb.spawn("trap 'echo got it; exit 9' USR1; echo up; while :; do sleep 0.01; done") as process:
        assert process.read() == b"up\n"
        process.signal(signal.SIGUSR1)
        result = process.wait(60)
        assert (result.exit_code, result.stdout) == (9, "got it\n")
        process.signal(signal.SIGTERM)
        process.kill()
        process.close_stdin()
        with pytest.raises(BrokenPipeError):
            process.write(b"x")


def test_kill_ends_it(sb: Any) -> None:
    with sb.spawn("echo up; sleep 1000") as process:
        assert process.read() == b"up\n"
        process.kill()
        assert process.wait(60).signal == signal.SIGKILL


def test_closing_ends_it_and_may_be_done_twice(sb: Any) -> None:
    process = sb.spawn("sleep 1000")
    process.close()
    process.close()
    while sb.processes():
        pass


def test_its_time_is_limited_and_measured(sb: Any) -> None:
    def cut_off(seconds: float) -> Any:
        with sb.spawn("echo so far; sleep 1000", timeout=seconds) as process:
            return process.wait(60)

    result = given_time(cut_off, lambda done: done.stdout)
    assert (result.timed_out, result.stdout) == (True, "so far\n")


@pytest.mark.parametrize("stream", ["stdin", "both", 1])
def test_an_unknown_stream_is_an_error(sb: Any, stream: Any) -> None:
    with sb.spawn("true") as process, pytest.raises(InvalidArgument, match="stdout"):
        process.read(stream=stream)


@pytest.mark.parametrize("arguments", [{"pty": (0, 80)}, {"pty": 5}, {"keep": "a b"}, {"timeout": "1"}])
def test_invalid_arguments_are_errors(sb: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        sb.spawn("true", **arguments)


def test_running_commands_are_listed(sb: Any) -> None:
    assert sb.processes() == []
    with sb.spawn(["sleep", "1000"]) as process, sb.spawn("echo up; cat", pty=(24, 80), keep="editor") as editor:
        assert editor.read().startswith(b"up")
        first, second = sb.processes()
        assert (first.pid, first.command, first.tty, first.keep) == (process.pid, "sleep 1000", False, None)
        assert (second["keep"], second["tty"]) == ("editor", True)
        assert first.id != second.id and first.started <= second.started
        editor.kill()
        process.kill()
        process.wait(60)
        editor.wait(60)
    assert sb.processes() == []


@pytest.mark.parametrize("pty", [None, (24, 80)])
def test_a_kept_command_outlives_the_client_that_started_it_and_can_be_joined(
    sb: Any, pty: tuple[int, int] | None
) -> None:
    with sb.spawn("echo first; read x; echo $x; read x; exit 6", pty=pty, keep="work") as process:
        assert process.read().startswith(b"first")
        pid = process.pid
    with sb.connect("work") as again:
        assert again.pid == pid
        assert again.read().startswith(b"first")
        again.write(b"second\n")
        seen = b""
        while b"second" not in seen:
            seen += again.read()
    with sb.spawn("never started", keep="work", pty=pty) as third:
        assert third.pid == pid
        third.write(b"\n")
        assert third.wait(60).exit_code == 6
    with pytest.raises(NotFound, match="work"):
        sb.connect("work")


def test_a_kept_command_that_cannot_start_is_an_error(sb: Any) -> None:
    with pytest.raises(CommandError):
        sb.spawn(["no-such-program"], keep="work")
    with pytest.raises(NotFound):
        sb.connect("work")


def test_a_command_ends_with_the_sandbox(open_sandbox: Any) -> None:
    sb = open_sandbox()
    process = sb.spawn("echo up; sleep 1000")
    assert process.read() == b"up\n"
    sb.close()
    with pytest.raises(SandboxClosed):
        process.wait(60)


def test_it_is_a_process_whatever_surface_gives_it(sb: Any) -> None:
    if type(sb).__name__ == "Awaited":
        pytest.skip("its methods are coroutines")
    with sb.spawn("true") as process, sb.spawn("true", keep="one") as kept:
        assert isinstance(process, Process) and isinstance(kept, Process)
