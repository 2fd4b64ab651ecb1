"""Commands, by every surface and on every engine."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from sandbox import Chunk, CommandError, ExecResult, InvalidArgument
from tests.patience import given_time


def test_text_is_run_by_the_shell_and_a_list_as_it_is(sb: Any) -> None:
    result = sb.exec("echo one; echo two >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code, result.ok) == ("one\n", "two\n", 3, False)
    assert sb.exec(["printf", "%s|", "a b", "$HOME", b"*"]).stdout == "a b|$HOME|*|"


def test_a_result_can_be_read_by_name_as_in_the_specifications_samples(sb: Any) -> None:
    result = sb.exec("echo hello")
    assert (result["stdout"], result["exit_code"]) == ("hello\n", 0)
    with pytest.raises(KeyError):
        result["nothing"]


def test_a_command_starts_in_the_directory_that_is_reported(sb: Any, project: Path) -> None:
    (project / "sub").mkdir()
    assert sb.directory == str(project.resolve())
    assert sb.exec(["pwd"]).stdout.strip() == sb.directory
    assert sb.exec(["pwd"], "sub").stdout == sb.exec(["pwd"], cwd=Path("sub")).stdout == f"{sb.directory}/sub\n"


def test_working_dir_and_cwd_together_are_an_error(sb: Any) -> None:
    with pytest.raises(InvalidArgument, match="working_dir and cwd"):
        sb.exec("true", "a", cwd="b")


def test_input_is_text_or_bytes_and_stdin_is_another_name_for_it(sb: Any) -> None:
    assert sb.exec(["cat"], input="grün").stdout == "grün"
    assert sb.exec(["cat"], input=b"\xff\x00").stdout_bytes == b"\xff\x00"
    assert sb.exec(["cat"], stdin="old").stdout == "old"
    assert sb.exec(["cat"]).stdout == ""
    with pytest.raises(InvalidArgument, match="input and stdin"):
        sb.exec(["cat"], input="a", stdin="b")


def test_variables_are_set_for_one_command(sb: Any) -> None:
    assert sb.exec('echo "$COLOUR"', env={"COLOUR": "blau grün"}).stdout == "blau grün\n"
    assert sb.exec('echo "$COLOUR"').stdout == "\n"


def test_check_raises_with_both_outputs_and_the_result(sb: Any) -> None:
    with pytest.raises(CommandError, match="exited with status 7: bad news") as caught:
        sb.exec("echo so far; echo bad news >&2; exit 7", check=True)
    problem = caught.value
    assert (problem.stdout, problem.stderr, problem.exit_code) == ("so far\n", "bad news\n", 7)
    assert problem.result is not None and problem.result.exit_code == 7
    assert sb.exec("true", check=True).ok


def test_check_names_the_signal_that_ended_a_command(sb: Any) -> None:
    with pytest.raises(CommandError, match="was ended by signal 15") as caught:
        sb.exec("kill -TERM $$", check=True)
    assert caught.value.result is not None and caught.value.result.signal == signal.SIGTERM


def test_a_timeout_is_reported_and_the_output_so_far_is_kept(sb: Any) -> None:
    result = given_time(lambda seconds: sb.exec("echo so far; sleep 1000", timeout=seconds), lambda done: done.stdout)
    assert (result.timed_out, result.stdout, result.ok) == (True, "so far\n", False)


def test_a_timeout_that_is_checked_raises_with_the_output_so_far(sb: Any) -> None:
    def cut_off(seconds: float) -> CommandError:
        with pytest.raises(CommandError, match="longer than its timeout") as caught:
            sb.exec("echo so far; sleep 1000", timeout=seconds, check=True)
        return caught.value

    assert given_time(cut_off, lambda error: error.stdout).stdout == "so far\n"


def test_callbacks_get_each_output_as_it_comes_and_the_result_has_it_too(sb: Any) -> None:
    out: list[bytes] = []
    err: list[bytes] = []
    result = sb.exec("printf a; printf b >&2", on_stdout=out.append, on_stderr=err.append)
    assert (b"".join(out), b"".join(err)) == (b"a", b"b")
    assert (result.stdout, result.stderr) == ("a", "b")


def test_a_callback_that_raises_ends_the_command(sb: Any) -> None:
    class Enough(Exception):
        pass

    def stop(_: bytes) -> None:
        raise Enough

    with pytest.raises(Enough):
        sb.exec("echo go; exec sleep 1000", on_stdout=stop)
    while sb.processes():
        pass


def test_output_beyond_the_limit_is_cut_and_marked(sb: Any) -> None:
    result = sb.exec("head -c 100000 /dev/zero | tr '\\0' x", max_output=10)
    assert result.truncated
    assert result.stdout.startswith("x" * 10 + "\n[output cut by sandbox: 99990 more bytes]")


def test_output_comes_as_a_stream_with_the_result_last(sb: Any) -> None:
    items = list(sb.exec_stream("echo out; echo err >&2; exit 4"))
    assert isinstance(items[-1], ExecResult) and items[-1].exit_code == 4
    assert {(one.stream, one.data) for one in items[:-1] if isinstance(one, Chunk)} == {
        ("stdout", b"out\n"),
        ("stderr", b"err\n"),
    }


def test_closing_a_stream_early_ends_the_command(sb: Any) -> None:
    stream = sb.exec_stream("echo go; exec sleep 1000")
    assert next(stream).data == b"go\n"
    stream.close()
    while sb.processes():
        pass


def test_a_program_that_does_not_exist_is_an_error_with_status_127(sb: Any) -> None:
    for run in (sb.exec, sb.spawn, lambda command: list(sb.exec_stream(command))):
        with pytest.raises(CommandError, match="no-such-program") as caught:
            run(["no-such-program"])
        assert (caught.value.exit_code, caught.value.result) == (127, None)


def test_a_directory_that_does_not_exist_is_an_error(sb: Any) -> None:
    with pytest.raises(CommandError, match="working directory"):
        sb.exec(["true"], "nowhere")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"timeout": "1"}, "timeout must be a number of seconds, not '1'"),
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"timeout": float("nan")}, "timeout must be more than 0"),
        ({"env": {"A": None}}, "env: 'A' must be text"),
        ({"env": {"A=B": "x"}}, "env: 'A=B' has an invalid"),
        ({"env": {"A": "x\0y"}}, "env: 'A' has an invalid"),
        ({"working_dir": "/tmp\0/x"}, "a directory cannot contain a NUL"),
        ({"input": 5}, "input must be text or bytes, not int"),
        ({"max_output": "1"}, "max_output must be a number of bytes, not '1'"),
    ],
)
def test_an_invalid_argument_is_named(sb: Any, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        sb.exec("true", **arguments)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([], "command is empty"),
        ("", "command is empty"),
        (b"true", "text for the shell or a list"),
        (5, "text for the shell or a list"),
        (["echo", 5], "must be text or bytes, not 5"),
        (["echo", "a\0b"], "NUL"),
    ],
)
def test_an_invalid_command_is_an_error(sb: Any, command: Any, said: str) -> None:
    for run in (sb.exec, sb.spawn, lambda command: list(sb.exec_stream(command))):
        with pytest.raises(InvalidArgument, match=said):
            run(command)


def test_events_of_commands_have_an_id_a_start_and_fractions_of_a_second(sb: Any) -> None:
    from threading import Event

    seen: list[dict[str, Any]] = []
    ended = Event()

    def note(event: dict[str, Any]) -> None:
        seen.append(event)
        if event["type"] == "exec":
            ended.set()

    forget = sb.on_event(note)
    sb.exec(["sh", "-c", "exit 2"])
    assert ended.wait(60)
    start, end = (one for one in seen if one["type"] in ("exec_start", "exec"))
    assert start["exec_start"]["id"] == end["exec"]["id"] and start["exec_start"]["pid"] > 1
    assert start["exec_start"]["command"] == end["exec"]["command"] == "sh -c exit 2"
    assert end["exec"]["exit_code"] == 2
    assert isinstance(end["timestamp"], float) and any(one["timestamp"] % 1 for one in seen)
    forget()


def test_a_handler_may_itself_use_the_sandbox(sb: Any) -> None:
    from threading import Event

    done = Event()

    def look(event: dict[str, Any]) -> None:
        if event["type"] == "exec" and not done.is_set():
            done.set() if sb.exists("made") else None

    if type(sb).__name__ == "Awaited":
        pytest.skip("a handler of AsyncSandbox is no coroutine; it uses `sync`")
    sb.on_event(look)
    sb.exec("touch made")
    assert done.wait(60)
