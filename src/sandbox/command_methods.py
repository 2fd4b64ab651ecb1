"""Running commands, as callers see it: the same for a sandbox in this process and in another one."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sandbox import arguments
from sandbox.result import OUTPUT_LIMIT, Chunk, ExecResult, Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sandbox.arguments import Command, Path
    from sandbox.protocols import Process
    from sandbox.result import Listener
    from sandbox.sessions.session import CodeSession


class CommandMethods(ABC):
    """`exec`, `exec_stream`, `spawn` and sessions, built on `_begin` and `_spawned`."""

    def exec(
        self,
        command: Command,
        working_dir: Path | None = None,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
        check: bool = False,
        max_output: int = OUTPUT_LIMIT,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
    ) -> ExecResult:
        """Runs a command to its end and returns its result: text is run by the shell, a list as it is.

        It starts in the project, or in `working_dir` (`cwd` is the same), reads `input` (`stdin` is the same) and has
        the variables `env` besides the sandbox's. After `timeout` seconds it is killed; the result says so in
        `timed_out` and has the output until then. Each output is kept up to `max_output` bytes; a mark says how
        much was cut. `on_stdout` and `on_stderr` are called with each piece of output as it comes; an exception in them
        kills the command.

        Raises CommandError when the command never started, and with `check=True` also when it failed, with its result
        and both outputs; InvalidArgument; SandboxClosed when the sandbox ended meanwhile.
        """
        output = Output(max_output, on_stdout, on_stderr)
        directory, given = arguments.directory(working_dir, cwd), arguments.whole_input(input, stdin)
        result = self._collect(output, command, directory, env=env, input=given, timeout=timeout)
        if check:
            result.check(arguments.name(command))
        return result

    def exec_stream(
        self,
        command: Command,
        working_dir: Path | None = None,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
    ) -> Iterator[Chunk | ExecResult]:
        """Runs a command as `exec` does. Yields its output as it comes, and the result, without output, last.

        Stopping the iteration kills the command. A slow reader slows the command down. Raises what `exec` raises.
        """
        directory, given = arguments.directory(working_dir, cwd), arguments.whole_input(input, stdin)
        with self._begin(command, directory, env=env, input=given, timeout=timeout) as process:
            yield from process.chunks()
            assert process.result is not None
            yield process.result

    def spawn(
        self,
        command: Command,
        working_dir: Path | None = None,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        pty: tuple[int, int] | None = None,
        keep: str | None = None,
    ) -> Process:
        """Starts a command and returns it as soon as it runs; the caller talks to it and closes it.

        With `pty` (rows, columns) it runs on a terminal, else on pipes. With `keep` (a name) it goes on running when
        it is closed here, and `connect` joins it; when a command of that name runs already, that one is returned.
        Raises CommandError when it cannot be started, InvalidArgument, SandboxClosed.
        """
        directory, size = arguments.directory(working_dir, cwd), arguments.size(pty)
        return self._spawned(command, directory, env=env, timeout=timeout, pty=size, keep=arguments.kept_name(keep))

    def python(self, kernel: str = "auto") -> CodeSession:
        """Returns a Python inside that keeps its state between calls: `run("1 + 1").text` is "2".

        It is a Jupyter kernel where `ipykernel` is inside, else our own small interpreter; "jupyter" or "plain" asks
        for that one. It starts with the first `run`. Raises InvalidArgument.
        """
        return self.session("python", kernel)

    def session(self, language: str, kernel: str = "auto") -> CodeSession:
        """Returns an interpreter inside that keeps its state between calls: "python", "node",
        "typescript" or "bash".

        Raises InvalidArgument.
        """
        from sandbox.sessions.languages import open_session

        return open_session(self, language, kernel)

    # -- what a subclass does

    @abstractmethod
    def _begin(
        self,
        command: Command,
        directory: str | None,
        *,
        env: Mapping[str, str] | None,
        input: bytes | None,
        timeout: float | None,
    ) -> Process:
        """Starts a command whose whole input is known: `input`, or nothing. Its `chunks()` feed it and yield output."""

    @abstractmethod
    def _spawned(
        self,
        command: Command,
        directory: str | None,
        *,
        env: Mapping[str, str] | None,
        timeout: float | None,
        pty: tuple[int, int] | None,
        keep: str | None,
    ) -> Process:
        """Starts a command and waits until it runs, or joins the one that is kept under that name."""

    def _collect(
        self,
        output: Output,
        command: Command,
        directory: str | None,
        *,
        env: Mapping[str, str] | None,
        input: bytes | None,
        timeout: float | None,
    ) -> ExecResult:
        """Runs a command to its end and returns its result, with what `output` collected."""
        with self._begin(command, directory, env=env, input=input, timeout=timeout) as process:
            for chunk in process.chunks():
                output.add(chunk)
            assert process.result is not None
            return output.into(process.result)
