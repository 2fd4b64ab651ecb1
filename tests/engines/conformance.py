"""What every engine promises. A new engine subclasses `Conformance`, names itself, and passes.

These tests say nothing about walls (those are in `tests/security/`): they hold for an engine that builds none, too.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import AsyncSandbox, Chunk, CommandError, ExecResult, Sandbox, SandboxClosed
from sandbox.engines.base import Pausable, Reporting


class Conformance:
    engine: str

    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        project = tmp_path / "project"
        project.mkdir()
        return project

    def make(self, project: Path, **more: object) -> Sandbox:
        return Sandbox({"engine": self.engine, "filesystem": {"root": str(project)}, **more})

    @pytest.fixture
    def sandbox(self, project: Path) -> Iterator[Sandbox]:
        with self.make(project) as sandbox:
            yield sandbox

    def test_what_the_engine_declares_is_there(self, sandbox: Sandbox) -> None:
        running, can = sandbox._running, sandbox._can
        assert isinstance(running, Pausable) or not can.checkpoint
        assert isinstance(running, Reporting) or not can.tripwires
        assert running.pid is not None or not can.namespace

    # -- commands

    def test_a_string_is_run_by_the_shell(self, sandbox: Sandbox) -> None:
        assert sandbox.exec("echo one; echo two >&2; exit 3")["stdout"] == "one\n"
        result = sandbox.exec("echo one; echo two >&2; exit 3")
        assert (result.stdout, result.stderr, result.exit_code) == ("one\n", "two\n", 3)

    def test_a_list_is_run_as_it_is(self, sandbox: Sandbox) -> None:
        assert sandbox.exec(["printf", "%s|", "a b", "$HOME", "*"]).stdout == "a b|$HOME|*|"

    def test_a_command_starts_in_the_project(self, sandbox: Sandbox, project: Path) -> None:
        assert sandbox.exec(["pwd"]).stdout.strip() == str(project.resolve())

    def test_a_working_directory_may_be_relative_to_the_project(self, sandbox: Sandbox, project: Path) -> None:
        (project / "sub").mkdir()
        assert sandbox.exec(["pwd"], "sub").stdout.strip() == str(project.resolve() / "sub")

    def test_a_working_directory_that_does_not_exist_is_an_error(self, sandbox: Sandbox) -> None:
        with pytest.raises(CommandError, match="working directory"):
            sandbox.exec(["true"], "nowhere")

    def test_a_program_that_does_not_exist_is_an_error_with_status_127(self, sandbox: Sandbox) -> None:
        with pytest.raises(CommandError, match="no such command") as caught:
            sandbox.exec(["no-such-program"])
        assert caught.value.exit_code == 127

    def test_a_directory_on_path_that_cannot_be_inspected_has_no_program(
        self, sandbox: Sandbox, project: Path
    ) -> None:
        (project / "closed").mkdir(mode=0)
        path = {"PATH": f"{project.resolve()}/closed:/usr/bin:/bin"}
        with pytest.raises(CommandError, match="no such command") as caught:
            sandbox.exec(["no-such-program"], env=path)
        assert caught.value.exit_code == 127
        assert sandbox.exec(["true"], env=path).exit_code == 0

    def test_a_file_that_is_not_executable_is_an_error_with_status_126(self, sandbox: Sandbox, project: Path) -> None:
        (project / "plain").write_text("x")
        with pytest.raises(CommandError) as caught:
            sandbox.exec(["./plain"])
        assert caught.value.exit_code == 126

    def test_an_empty_command_is_an_error(self, sandbox: Sandbox) -> None:
        with pytest.raises(Exception, match="command is empty"):
            sandbox.exec([])

    def test_variables_can_be_set_for_one_command(self, sandbox: Sandbox) -> None:
        assert sandbox.exec('echo "$COLOUR"', env={"COLOUR": "blau grün"}).stdout == "blau grün\n"
        assert sandbox.exec('echo "$COLOUR"').stdout == "\n"

    def test_standard_input_is_given_and_ends(self, sandbox: Sandbox) -> None:
        assert sandbox.exec(["cat"], stdin="hello").stdout == "hello"
        assert sandbox.exec(["cat"]).stdout == ""

    def test_a_signal_that_ends_a_command_is_reported(self, sandbox: Sandbox) -> None:
        result = sandbox.exec("kill -TERM $$")
        assert (result.signal, result.exit_code) == (signal.SIGTERM, 128 + signal.SIGTERM)

    def test_arguments_that_are_not_utf8_arrive_unchanged(self, sandbox: Sandbox) -> None:
        assert sandbox.exec([b"printf", b"%s", b"\xff\xfe"]).stdout_bytes == b"\xff\xfe"

    def test_an_argument_list_of_200_kilobytes_arrives(self, sandbox: Sandbox) -> None:
        words = ["x" * 100] * 2000
        assert sandbox.exec(["sh", "-c", "echo $# ${#1}", "sh", *words]).stdout == "2000 100\n"

    def test_a_binary_input_of_100_megabytes_arrives_whole(self, sandbox: Sandbox) -> None:
        data = os.urandom(2**20) * 100
        assert sandbox.exec(["sha256sum"], stdin=data).stdout.split()[0] == hashlib.sha256(data).hexdigest()

    def test_input_and_output_larger_than_any_pipe_flow_at_the_same_time(self, sandbox: Sandbox) -> None:
        data = b"line\n" * 200_000
        assert sandbox.exec(["cat"], stdin=data).stdout_bytes == data

    def test_a_command_that_does_not_read_its_input_ends_anyway(self, sandbox: Sandbox) -> None:
        assert sandbox.exec(["true"], stdin=b"x" * 2**22).exit_code == 0

    def test_output_over_the_limit_is_cut_with_a_mark(self, sandbox: Sandbox) -> None:
        result = sandbox.exec("head -c 5000000 /dev/zero | tr '\\0' x", max_output=1000)
        assert result.truncated
        assert result.stdout.startswith("x" * 1000 + "\n[output cut by sandbox: 4999000 more bytes]")
        assert len(result.stdout) < 1100

    def test_a_timeout_kills_the_command_and_what_it_started(self, sandbox: Sandbox, project: Path) -> None:
        result = sandbox.exec("echo begun; sleep 1000 & sleep 1000; echo never", timeout=0.2)
        assert result.timed_out
        assert result.stdout in ("begun\n", "")  # a slow machine does not get that far
        assert "timeout" in result.note

    def test_the_configured_timeout_holds_too(self, project: Path) -> None:
        with self.make(project, limits={"timeout": "200ms"}) as sandbox:
            assert sandbox.exec("sleep 1000").timed_out

    def test_what_runs_in_the_background_is_not_waited_for(self, sandbox: Sandbox) -> None:
        assert sandbox.exec("sleep 1000 & echo done").stdout == "done\n"

    def test_what_writes_in_the_background_without_pause_is_not_waited_for(self, sandbox: Sandbox) -> None:
        result = sandbox.exec("yes & echo done", timeout=60)
        assert not result.timed_out
        assert "done\n" in result.stdout

    def test_all_that_a_command_wrote_is_there_when_a_program_is_left_behind(self, sandbox: Sandbox) -> None:
        assert len(sandbox.exec("sleep 1000 & head -c 700000 /dev/zero").stdout_bytes) == 700_000

    def test_time_and_memory_are_measured(self, sandbox: Sandbox) -> None:
        result = sandbox.exec(["python3", "-c", "x = bytearray(50_000_000); sum(range(2_000_000))"])
        assert result.ok
        assert result.max_rss_kb > 50_000
        assert result.user_ms > 0
        assert result.duration_ms >= result.user_ms // 4

    # -- streaming and spawning

    def test_a_stream_yields_output_as_it_comes_and_the_result_last(self, sandbox: Sandbox) -> None:
        items = list(sandbox.exec_stream("echo out; echo err >&2; exit 4"))
        assert isinstance(items[-1], ExecResult)
        assert items[-1].exit_code == 4
        chunks = [item for item in items if isinstance(item, Chunk)]
        assert b"".join(one.data for one in chunks if one.stream == "stdout") == b"out\n"
        assert b"".join(one.data for one in chunks if one.stream == "stderr") == b"err\n"

    def test_output_arrives_before_the_command_has_ended(self, sandbox: Sandbox) -> None:
        stream = sandbox.exec_stream("echo first; read line; echo $line", stdin="second\n")
        first = next(stream)
        assert isinstance(first, Chunk)
        assert first.data.startswith(b"first")
        stream.close()  # type: ignore[attr-defined]

    def test_a_listener_that_stops_listening_kills_the_command(self, sandbox: Sandbox, project: Path) -> None:
        stream = sandbox.exec_stream("trap '' TERM HUP; echo $$ > pid; echo go; while :; do sleep 1; done")
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        pid = (project / "pid").read_text().strip()
        # `kill -0` succeeds for as long as there is a process.
        assert sandbox.exec(f"while kill -0 {pid} 2>/dev/null; do :; done; echo gone", timeout=20).stdout == "gone\n"

    def test_a_spawned_process_is_talked_to(self, sandbox: Sandbox) -> None:
        with sandbox.spawn(["sed", "-u", "s/^/> /"]) as process:
            process.write(b"hello\n")
            assert process.read() == b"> hello\n"
            process.close_stdin()
            assert process.wait().exit_code == 0

    def test_a_spawned_process_can_be_signalled_and_killed(self, sandbox: Sandbox) -> None:
        with sandbox.spawn("trap 'echo caught' USR1; echo ready; while :; do sleep 0.05; done") as process:
            assert process.read() == b"ready\n"
            process.signal(signal.SIGUSR1)
            assert process.read() == b"caught\n"
            with pytest.raises(TimeoutError):
                process.wait(timeout=0)
            process.kill()
            assert process.wait().signal == signal.SIGKILL

    def test_a_terminal_has_a_size_that_can_change(self, sandbox: Sandbox) -> None:
        loop = "trap 'stty size' WINCH; stty size; tty; while :; do sleep 0.05; done"
        with sandbox.spawn(loop, pty=(24, 80)) as process:
            seen = b""
            while b"/dev/pts/" not in seen:
                seen += process.read()
            assert seen.startswith(b"24 80\r\n")
            process.resize(50, 132)
            while b"50 132" not in seen:
                seen += process.read()
            process.write(b"\x03")
            assert process.wait().signal == signal.SIGINT

    def test_many_commands_run_at_the_same_time(self, sandbox: Sandbox) -> None:
        results: dict[int, str] = {}

        def work(number: int) -> None:
            results[number] = sandbox.exec(["sh", "-c", f"echo {number}"]).stdout

        threads = [threading.Thread(target=work, args=(number,)) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == {number: f"{number}\n" for number in range(50)}

    def test_many_sandboxes_live_in_one_process(self, tmp_path: Path) -> None:
        sandboxes = []
        for number in range(8):
            (tmp_path / str(number)).mkdir()
            sandboxes.append(self.make(tmp_path / str(number)))
        try:
            for number, sandbox in enumerate(sandboxes):
                sandbox.exec(f"echo {number} > mine")
            assert [(tmp_path / str(number) / "mine").read_text() for number in range(8)] == [
                f"{number}\n" for number in range(8)
            ]
        finally:
            for sandbox in sandboxes:
                sandbox.close()

    # -- files

    def test_files_are_written_read_and_listed(self, sandbox: Sandbox, project: Path) -> None:
        sandbox.write_file("hello.txt", "hallo\n", mode=0o600)
        assert (project / "hello.txt").read_text() == "hallo\n"
        assert (project / "hello.txt").stat().st_mode & 0o777 == 0o600
        assert sandbox.read_file("hello.txt") == b"hallo\n"
        sandbox.mkdir("a/b")
        assert sorted((one["name"], one["is_dir"]) for one in sandbox.list_files(".")) == [
            ("a", True),
            ("hello.txt", False),
        ]
        sandbox.rename("hello.txt", "a/b/c.txt")
        assert sandbox.stat("a/b/c.txt")["size"] == 6
        with pytest.raises(OSError):
            sandbox.remove("a")
        sandbox.remove("a", recursive=True)
        assert list(project.iterdir()) == []

    def test_a_program_that_was_just_written_can_be_run(self, sandbox: Sandbox) -> None:
        for _ in range(50):
            sandbox.write_file("program", "#!/bin/sh\necho ran\n", mode=0o755)
            assert sandbox.exec(["./program"]).stdout == "ran\n"

    def test_a_file_that_does_not_exist_is_the_usual_error(self, sandbox: Sandbox) -> None:
        with pytest.raises(FileNotFoundError):
            sandbox.read_file("nothing")
        with pytest.raises(NotADirectoryError):
            sandbox.write_file("file", "x")
            sandbox.list_files("file")

    def test_a_pipe_or_device_cannot_be_read_as_a_file(self, sandbox: Sandbox) -> None:
        sandbox.exec("mkfifo pipe")
        with pytest.raises(OSError, match="regular file"):
            sandbox.read_file("pipe")
        with pytest.raises(OSError, match="regular file"):
            sandbox.read_file("/dev/zero")

    def test_a_file_over_the_limit_is_refused(self, sandbox: Sandbox) -> None:
        sandbox.write_file("big", b"x" * 5000)
        with pytest.raises(OSError, match="larger than 4999"):
            sandbox.read_file("big", max_bytes=4999)
        assert len(sandbox.read_file("big", max_bytes=5000)) == 5000

    # -- events, and the end

    def test_listeners_get_events_of_commands_and_the_end(self, project: Path) -> None:
        seen: list[dict[str, object]] = []
        with self.make(project) as sandbox:
            unsubscribe = sandbox.on_event(seen.append)
            sandbox.exec(["sh", "-c", "exit 2"])
        assert [one["type"] for one in seen] == ["exec_start", "exec", "lifecycle"]
        assert seen[1]["exec"]["exit_code"] == 2  # type: ignore[index]
        unsubscribe()

    def test_close_takes_every_process_with_it(self, project: Path) -> None:
        sandbox = self.make(project)
        # Only descendants of the sandbox hold the writing end: its end of file is their end.
        read, write = os.pipe()
        with sandbox._spawn(
            "setsid sleep 1000 & sleep 1000 & echo ok; exec 1>&-; sleep 1000", stdio=(None, None, write)
        ) as process:
            os.close(write)
            assert process.read() == b"ok\n"
            sandbox.close()
        assert os.read(read, 1) == b""
        os.close(read)

    def test_after_close_nothing_works_and_closing_again_does_no_harm(self, sandbox: Sandbox) -> None:
        sandbox.close()
        sandbox.close()
        with pytest.raises(SandboxClosed):
            sandbox.exec("true")
        with pytest.raises(SandboxClosed):
            sandbox.read_file("x")

    def test_closing_while_a_command_runs_ends_the_wait(self, sandbox: Sandbox) -> None:
        closer: threading.Thread | None = None
        with pytest.raises(SandboxClosed):
            for _ in sandbox.exec_stream("echo go; sleep 1000"):
                closer = threading.Thread(target=sandbox.close)
                closer.start()
        assert closer is not None
        closer.join()

    # -- asyncio

    def test_the_asynchronous_sandbox_does_the_same(self, project: Path) -> None:
        async def scenario() -> None:
            config = {"engine": self.engine, "filesystem": {"root": str(project)}}
            async with AsyncSandbox(config) as sandbox:
                results = await asyncio.gather(*(sandbox.exec(f"echo {number}") for number in range(20)))
                assert [one.stdout for one in results] == [f"{number}\n" for number in range(20)]
                await sandbox.write_file("x", "y")
                assert await sandbox.read_file("x") == b"y"
                items = [item async for item in sandbox.exec_stream("echo a; exit 3")]
                assert isinstance(items[-1], ExecResult)
                assert items[-1].exit_code == 3

        asyncio.run(scenario())

    def test_cancelling_an_asynchronous_exec_kills_its_command(self, project: Path) -> None:
        async def scenario() -> None:
            config = {"engine": self.engine, "filesystem": {"root": str(project)}}
            async with AsyncSandbox(config) as sandbox:
                stream = sandbox.exec_stream("echo $$; sleep 1000")
                first = await anext(stream)
                assert isinstance(first, Chunk)
                waiting = asyncio.ensure_future(anext(stream))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                pid = first.data.decode().strip()
                gone = await sandbox.exec(f"while kill -0 {pid} 2>/dev/null; do :; done; echo gone", timeout=20)
                assert gone.stdout == "gone\n"

        asyncio.run(scenario())
