"""Running commands in a standing sandbox: the part of `Sandbox` that starts, feeds and judges them."""

from __future__ import annotations

import os

from sandbox.errors import CommandError, SandboxClosed, SandboxError
from sandbox.events import Events, event
from sandbox.result import Chunk, Collector, ExecResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sandbox.audit.record import Record
    from sandbox.config.model import Config
    from sandbox.engines.base import Running
    from sandbox.guest.process import Process
    from sandbox.plan.plan import Plan

    Command = str | Sequence[str | bytes]

OUTPUT_LIMIT = 10 * 2**20
LONGEST = 1e9  # seconds: what is asked for beyond is as good as no limit, and the guest's numbers end


class Commands:
    """What `Sandbox` can do with commands. It is made by `Sandbox` alone, which furnishes what is declared here."""

    config: Config
    record: Record
    _plan: Plan
    _running: Running
    _events: Events
    _closed: bool

    @property
    def null(self) -> int | None:
        """The inside's /dev/null, for a stream of `spawn` that is to be nothing. Not the caller's to close."""
        return self._running.null()

    def exec(
        self,
        command: Command,
        working_dir: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
        max_output: int = OUTPUT_LIMIT,
    ) -> ExecResult:
        """Runs a command to its end: a string by the shell, a list as it is.

        Each of stdout and stderr is kept up to `max_output` bytes; what is over is cut, with a mark. A command that
        runs longer than `timeout` seconds is killed and the result says so. Raises CommandError when it never
        started, SandboxClosed when the sandbox ended meanwhile.
        """
        out, err = Collector(max_output), Collector(max_output)
        for item in self.exec_stream(command, working_dir, env=env, stdin=stdin, timeout=timeout):
            if isinstance(item, Chunk):
                (out if item.stream == "stdout" else err).add(item.data)
            else:
                result = item
        result.stdout_bytes, result.stderr_bytes = out.value(), err.value()
        result.truncated = out.truncated or err.truncated
        return result

    def exec_stream(
        self,
        command: Command,
        working_dir: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
    ) -> Iterator[Chunk | ExecResult]:
        """Yields output as it comes, and the result last. A caller that stops iterating kills the command."""
        with self.begin(command, working_dir, env=env, stdin=stdin, timeout=timeout) as process:
            yield from process.chunks()
            assert process.result is not None
            yield process.result

    def begin(
        self,
        command: Command,
        working_dir: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
    ) -> Process:
        """Starts a command whose whole input is known: `stdin`, or nothing. Its `chunks()` feed it and yield output."""
        nothing = self.null if stdin is None else None
        process = self.spawn(command, working_dir, env=env, timeout=timeout, stdin=nothing)
        process.given = stdin.encode() if isinstance(stdin, str) else stdin or b""
        return process

    def spawn(
        self,
        command: Command,
        working_dir: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        pty: tuple[int, int] | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> Process:
        """Starts a command and returns at once; the caller talks to it and closes it.

        With `pty` (rows, columns) it gets a terminal. Else its standard streams are pipes, or the descriptors given,
        which stay the caller's. Raises SandboxClosed; a command that cannot start says so at its first `wait`.
        """
        argv = _argv(command)
        limit = min((one for one in (timeout, self.config.limits.timeout) if one is not None), default=None)
        request: dict[str, object] = {
            "argv": argv,
            "env": _pairs({**self._plan.environment, **(env or {})}),
            "cwd": os.fsencode(os.path.normpath(os.path.join(self._plan.directory, working_dir or "."))),
        }
        if limit is not None:
            request["timeout_ms"] = max(1, int(min(limit, LONGEST) * 1000))
        if pty is not None:
            request["pty"] = {"rows": pty[0], "cols": pty[1]}
            process = self._start(request, argv[0], [])
            process.wait_started()
        else:
            process = self._with_pipes(request, argv[0], (stdin, stdout, stderr))
        process.judge = lambda result: self._judge(argv, result)
        process.explain = lambda problem: self._explain(argv[0], problem)
        return process

    def _with_pipes(
        self, request: dict[str, object], name: bytes, given: tuple[int | None, int | None, int | None]
    ) -> Process:
        ours: list[int | None] = []
        theirs: list[int] = []
        made: list[int] = []
        try:
            for number, fd in enumerate(given):
                if fd is not None:
                    ours.append(None)
                    theirs.append(fd)
                    continue
                read, write = os.pipe()
                made += (read, write)
                ours.append(write if number == 0 else read)
                theirs.append(read if number == 0 else write)
            process = self._start(request, name, theirs)
        except BaseException:
            for fd in made:
                os.close(fd)
            raise
        for fd in made:
            if fd in theirs:
                os.close(fd)
        process.stdin, process.stdout, process.stderr = ours
        return process

    def _start(self, request: dict[str, object], name: bytes, stdio: list[int]) -> Process:
        if self._closed:
            raise SandboxClosed("the sandbox is closed")
        return self._running.start(request, os.fsdecode(name), stdio)

    def _explain(self, name: bytes, problem: CommandError) -> CommandError:
        """A command that is there outside: why not inside, and what would show it."""
        if problem.exit_code != 127 or not self._plan.walls:
            return problem
        from sandbox.layout.toolchains import hidden_program

        found = hidden_program(os.fsdecode(name), os.environ.get("PATH", ""), self._plan)
        return problem if found is None else CommandError(found, exit_code=127)

    def _judge(self, argv: list[bytes], result: ExecResult) -> None:
        """What only the outside knows of how a command ended."""
        if result.exit_code != 0 and not result.timed_out:
            reason = self._running.out_of_memory()
            if reason is not None:
                result.out_of_memory, result.note = True, reason
        # The program only: arguments may hold secrets, and the record must not.
        self.record.write(
            "policy_decision",
            f"ran {os.path.basename(os.fsdecode(argv[0]))}",
            operation="exec",
            target=os.fsdecode(argv[0]),
            result="allowed",
            policy=f"mode-{self.config.mode}",
            metadata={"exitCode": result.exit_code, "durationMs": result.duration_ms},
        )
        self._events.emit(
            event(
                "exec",
                command=" ".join(os.fsdecode(word) for word in argv),
                exit_code=result.exit_code,
                duration_ms=result.duration_ms,
            )
        )


def _argv(command: Command) -> list[bytes]:
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    if not words:
        raise SandboxError("an empty command")
    return [os.fsencode(word) for word in words]


def _pairs(environment: Mapping[str, str]) -> list[bytes]:
    return [os.fsencode(f"{name}={value}") for name, value in environment.items()]
