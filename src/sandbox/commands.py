"""Running commands in a standing sandbox: the part of `Sandbox` that starts, feeds and judges them."""

from __future__ import annotations

import os
from _functools import partial

from sandbox import arguments
from sandbox.command_methods import CommandMethods
from sandbox.errors import CommandError, SandboxClosed
from sandbox.events import Events, event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.arguments import Command
    from sandbox.audit.record import Record
    from sandbox.config.model import Config
    from sandbox.engines.base import Running
    from sandbox.guest.process import Process as LocalProcess
    from sandbox.info import ProcessInfo
    from sandbox.plan.plan import Plan
    from sandbox.processes import Launched, Processes, StartedCommand
    from sandbox.protocols import Process
    from sandbox.result import ExecResult


class Starting:
    """How a command is started, followed and judged. Part of `Sandbox`, which sets the attributes declared here."""

    config: Config
    record: Record
    _plan: Plan
    _running: Running
    _events: Events
    _processes: Processes
    _closed: bool

    @property
    def _null(self) -> int | None:
        """The sandbox's /dev/null, for a stream that is not used. The caller must not close it."""
        return self._running.null()

    if TYPE_CHECKING:  # of `Sandbox`

        def _not_paused(self) -> None: ...

    def _begin(
        self,
        command: Command,
        directory: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,
        timeout: float | None = None,
    ) -> LocalProcess:
        """Starts a command whose whole input is known: `input`, or nothing. Its `chunks()` feed it and yield output.

        Does not wait until it runs: `chunks()` raises when it cannot start.
        """
        nothing = self._null if input is None else None
        process = self._launch(command, directory, env, timeout, stdio=(nothing, None, None))
        if input is not None:
            process._give(input)
        return process

    def _spawn(
        self,
        command: Command,
        directory: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        pty: tuple[int, int] | None = None,
        keep: str | None = None,
        stdio: tuple[int | None, int | None, int | None] = (None, None, None),
        more: Launched | None = None,
    ) -> LocalProcess:
        """Starts a command and waits until it runs. It gets the descriptors in `stdio`; the caller still owns them."""
        process = self._launch(command, directory, env, timeout, pty, keep, stdio, more)
        try:
            process.wait_started()
        except BaseException:
            process.close()
            raise
        return process

    def _service(self, command: Command, *, env: Mapping[str, str] | None = None) -> LocalProcess:
        """Starts a program that serves the sandbox itself, such as its display, and waits until it runs.

        It does not count as a command: it has no time limit, is not listed, and does not keep the sandbox alive.
        """
        argv = _argv(command)
        request: dict[str, object] = {
            "argv": argv,
            "env": _pairs({**self._plan.environment, **arguments.variables(env)}),
            "cwd": os.fsencode(self._plan.directory),
        }
        process = self._with_pipes(request, argv[0], (None, None, self._null))
        try:
            process.wait_started()
        except BaseException:
            process.close()
            raise
        return process

    def _launch(
        self,
        command: Command,
        directory: str | None,
        env: Mapping[str, str] | None,
        timeout: float | None,
        pty: tuple[int, int] | None = None,
        keep: str | None = None,
        stdio: tuple[int | None, int | None, int | None] = (None, None, None),
        more: Launched | None = None,
    ) -> LocalProcess:
        argv = _argv(command)
        limits = (arguments.seconds(timeout), self.config.limits.timeout)
        limit = min((one for one in limits if one is not None), default=None)
        own = _pairs({**self._plan.environment, **arguments.variables(env)}) if more is None else more.pairs
        request: dict[str, object] = {
            "argv": argv,
            "env": own,
            "cwd": os.fsencode(os.path.normpath(os.path.join(self._plan.directory, directory or "."))),
        }
        if more is not None:
            request |= {"umask": more.umask, "end_session": True}
            if more.direct is not None:
                request["direct"] = more.direct
        if limit is not None:
            request["timeout_ms"] = max(1, int(min(limit, arguments.LONGEST) * 1000))
        if pty is not None:
            request["pty"] = {"rows": pty[0], "cols": pty[1]}
            process = self._start(request, argv[0], [])
        else:
            process = self._with_pipes(request, argv[0], stdio)
        started = self._processes.begin(" ".join(os.fsdecode(word) for word in argv), pty is not None, keep)
        started.label = more.label if more is not None else None
        self._follow(process, argv, started, more)
        return process

    def _follow(self, process: LocalProcess, argv: list[bytes], started: StartedCommand, more: Launched | None) -> None:
        """Arranges what happens on the host when the command runs, ends, or cannot be started."""

        def runs(pid: int) -> None:
            label = {} if started.label is None else {"label": started.label}
            self._events.emit(event("exec_start", id=started.id, command=started.command, pid=pid, **label))

        def judge(result: ExecResult) -> None:
            self._processes.remove(started)
            self._judge(argv, result)
            ended = {"exit_code": result.exit_code, "duration_ms": result.duration_ms}
            happened = event("exec", id=started.id, command=started.command, **ended)
            if more is None:
                self._events.emit(happened)
            else:
                more.announce = partial(self._events.emit, happened)

        def explain(problem: CommandError) -> CommandError:
            self._processes.remove(started)
            return self._explain(argv[0], problem)

        gone = partial(self._processes.remove, started)
        process._follow(runs=runs, judge=judge, explain=explain, gone=gone)
        self._processes.add(started, process)

    def _with_pipes(
        self, request: dict[str, object], name: bytes, given: tuple[int | None, int | None, int | None]
    ) -> LocalProcess:
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

    def _start(self, request: dict[str, object], name: bytes, stdio: list[int]) -> LocalProcess:
        if self._closed:
            raise SandboxClosed("the sandbox is closed")
        self._not_paused()
        return self._running.start(request, os.fsdecode(name), stdio)

    # -- what only the outside knows

    def _explain(self, name: bytes, problem: CommandError) -> CommandError:
        """For a command that exists only outside: says why it is missing inside, and what would show it."""
        if problem.exit_code != 127 or not self._plan.walls:
            return problem
        from sandbox.layout.toolchains import hidden_program

        found = hidden_program(os.fsdecode(name), os.environ.get("PATH", ""), self._plan)
        return problem if found is None else CommandError(found, exit_code=127)

    def _judge(self, argv: list[bytes], result: ExecResult) -> None:
        """Finds out whether a command ran out of memory, and puts its end on the record."""
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


class Commands(Starting, CommandMethods):
    """What `Sandbox` can do with commands."""

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
        def start() -> LocalProcess:
            return self._spawn(command, directory, env=env, timeout=timeout, pty=pty, keep=keep)

        if keep is None:
            return start()
        process, joined = self._processes.keep(keep, start)
        if joined and pty is not None:
            process.resize(*pty)
        return process

    def processes(self) -> list[ProcessInfo]:
        """Returns the commands that run now, whoever started them: here, or over a connection."""
        return self._processes.list()

    def _join(self, name: str) -> Process:
        """Joins the command that was started with `keep=name`; what it printed last comes first.

        Raises NotFound when no command of that name runs.
        """
        if self._closed:
            raise SandboxClosed("the sandbox is closed")
        return self._processes.connect(name)


def _argv(command: Command) -> list[bytes]:
    checked = arguments.words(command)
    words = ["/bin/sh", "-c", checked] if isinstance(checked, str) else checked
    return [os.fsencode(word) for word in words]


def _pairs(environment: Mapping[str, str]) -> list[bytes]:
    return [os.fsencode(f"{name}={value}") for name, value in environment.items()]
