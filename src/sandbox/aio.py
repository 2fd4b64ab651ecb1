"""The same sandbox for asyncio programs: every method of `Sandbox`, as a coroutine.

Each call waits in a thread of the sandbox's own, so that it holds up neither the loop nor another sandbox. A cancelled
`exec` kills its command. Any other cancelled call goes on in its thread, and what it returns is closed.
"""

from __future__ import annotations

import asyncio
from inspect import iscoroutinefunction
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sandbox import arguments
from sandbox.async_desktop import AsyncDesktop
from sandbox.async_files import AsyncFiles
from sandbox.async_process import AsyncProcess
from sandbox.async_threads import Threads
from sandbox.config.section import owned
from sandbox.errors import SandboxClosed
from sandbox.hook_names import ASK, names_of
from sandbox.result import OUTPUT_LIMIT, Chunk, ExecResult, Output
from sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from types import EllipsisType
    from typing import Self

    from sandbox.arguments import Command, Path
    from sandbox.async_session import AsyncCodeSession
    from sandbox.config.model import Config
    from sandbox.desktop.methods import BrowserEndpoints
    from sandbox.events import Handler
    from sandbox.info import Ask, Checkpoint, Port, ProcessInfo, Stats
    from sandbox.protocols import Process
    from sandbox.result import Listener


class AsyncSandbox(AsyncFiles):
    """`async with AsyncSandbox(config) as sb: await sb.exec(...)`. The walls are built on entering, or by `start()`."""

    def __init__(
        self,
        config: Config | Mapping[str, Any] | None = None,
        *,
        hooks: object | None = None,
        command: Sequence[str] | None = None,
        resolve: Callable[[str, int], Sequence[str]] | None = None,
    ) -> None:
        """Takes what `Sandbox` takes. Raises ConfigError for misspelt hooks; everything else is checked by `start`."""
        if hooks is not None:
            names_of(hooks)
        self._config = owned(config)  # copied now: later changes by the caller do not count
        self._hooks, self._command, self._resolve = hooks, command, resolve
        self._sandbox: Sandbox | None = None
        self._closed = False
        self._starting = asyncio.Lock()
        self._threads = Threads()

    async def start(self) -> Self:
        """Builds the walls, unless that is done. Raises what `Sandbox()` raises, and SandboxClosed."""
        if self._closed:
            raise SandboxClosed("the sandbox is closed")
        async with self._starting:
            if self._sandbox is None and not self._closed:
                loop = asyncio.get_running_loop()
                made = await self._threads.run(lambda: self._build(loop), Sandbox.close)
                self._sandbox = made
        if self._closed:  # meanwhile; `close` waits for us and ends what was built
            raise SandboxClosed("the sandbox is closed")
        return self

    def _build(self, loop: asyncio.AbstractEventLoop) -> Sandbox:
        hooks = _asked_in(loop, self._hooks)
        return Sandbox(self._config, hooks=hooks, command=self._command, resolve=self._resolve)

    @property
    def sync(self) -> Sandbox:
        """The sandbox itself, for what needs no waiting.

        Raises RuntimeError before `start`, SandboxClosed when it was closed without having been started.
        """
        if self._sandbox is None:
            if self._closed:
                raise SandboxClosed("the sandbox is closed")
            raise RuntimeError("not started: use `async with`, or await start()")
        return self._sandbox

    @property
    def id(self) -> str:
        """Its name in the registry."""
        return self.sync.id

    @property
    def engine(self) -> str:
        """What builds its walls."""
        return self.sync.engine

    @property
    def directory(self) -> str:
        """Where commands start, and what relative paths are relative to."""
        return self.sync.directory

    @property
    def environment(self) -> dict[str, str]:
        """The variables that were asked for, as tenants see them: placeholders where a secret was named."""
        return self.sync.environment

    @property
    def ports(self) -> list[Port]:
        """The published ports (`network.publish`), with the real number where 0 was asked for."""
        return self.sync.ports

    # -- commands

    async def exec(
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
        """Runs a command to its end, as `Sandbox.exec`, and raises what that raises. Cancelling it kills the command.

        `on_stdout` and `on_stderr` are called in the loop and may be coroutine functions.
        """
        output = Output(max_output, on_stdout, on_stderr)
        directory, given = arguments.directory(working_dir, cwd), arguments.whole_input(input, stdin)
        async with await self._begin(command, directory, env, given, timeout) as process:
            async for chunk in process.chunks():
                if asyncio.iscoroutine(told := output.add(chunk)):
                    await told
            assert process.result is not None
            result = output.into(process.result)
        if check:
            result.check(arguments.name(command))
        return result

    async def exec_stream(
        self,
        command: Command,
        working_dir: Path | None = None,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | str | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[Chunk | ExecResult]:
        """Runs a command as `exec` does. Yields its output as it comes, and the result, without output, last.

        Stopping the iteration, or being cancelled, kills the command. A slow reader slows the command down. Raises
        what `exec` raises.
        """
        directory, given = arguments.directory(working_dir, cwd), arguments.whole_input(input, stdin)
        async with await self._begin(command, directory, env, given, timeout) as process:
            async for chunk in process.chunks():
                yield chunk
            assert process.result is not None
            yield process.result

    async def spawn(
        self,
        command: Command,
        working_dir: Path | None = None,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        pty: tuple[int, int] | None = None,
        keep: str | None = None,
    ) -> AsyncProcess:
        """Starts a command and returns it as soon as it runs; the caller talks to it and closes it.

        With `pty` (rows, columns) it runs on a terminal, else on pipes. With `keep` (a name) it goes on running when
        it is closed here, and `connect` joins it; when a command of that name runs already, that one is returned.
        Raises CommandError when it cannot be started, InvalidArgument, SandboxClosed.
        """
        more = {"cwd": cwd, "env": env, "timeout": timeout, "pty": pty, "keep": keep}
        return await self._process(lambda: self.sync.spawn(command, working_dir, **more))  # type: ignore[arg-type]

    async def processes(self) -> list[ProcessInfo]:
        """Returns the commands that run now, whoever started them: here, or over a connection."""
        return self.sync.processes()

    async def connect(self, name: str) -> AsyncProcess:
        """Joins the command that was started with `keep=name`; what it printed last comes first.

        Raises NotFound when no command of that name runs.
        """
        return await self._process(lambda: self.sync.connect(name))

    async def python(self, kernel: str = "auto") -> AsyncCodeSession:
        """Returns a Python inside that keeps its state between calls, as `Sandbox.python`. Raises InvalidArgument."""
        return await self.session("python", kernel)

    async def session(self, language: str, kernel: str = "auto") -> AsyncCodeSession:
        """Returns an interpreter inside that keeps its state between calls: "python", "node",
        "typescript" or "bash".

        Raises InvalidArgument.
        """
        from sandbox.async_session import AsyncCodeSession

        return AsyncCodeSession(self.sync.session(language, kernel), self._threads.run)

    async def _begin(
        self,
        command: Command,
        directory: str | None,
        env: Mapping[str, str] | None,
        given: bytes | None,
        timeout: float | None,
    ) -> AsyncProcess:
        return await self._process(lambda: self.sync._begin(command, directory, env=env, input=given, timeout=timeout))

    async def _process(self, start: Callable[[], Process]) -> AsyncProcess:
        process = await self._threads.run(start, lambda begun: begun.close())
        return AsyncProcess(process, self._threads.run)

    # -- the rest

    async def update_network(self, changes: Mapping[str, Any]) -> None:
        """Changes the network's configuration; new connections see it at once. Raises ConfigError, changing nothing."""
        await self._threads.run(lambda: self.sync.update_network(changes))

    async def asks(self, watch: bool = False) -> list[Ask]:
        """Returns the questions that wait for an answer (docs/asks.md), the oldest first.

        With `watch`, the caller follows `ask` events and answers them from now on, so questions wait for its answer.
        Raises SandboxClosed.
        """
        return await self._threads.run(lambda: self.sync.asks(watch))

    async def answer(self, id: int, answer: str) -> None:
        """Answers a question: "once", "sandbox" (until this one ends), "always" (in the user's config too) or "deny".

        Raises NotFound when it was already answered or has expired, InvalidArgument, and SandboxError when the config
        cannot be written.
        """
        await self._threads.run(lambda: self.sync.answer(id, answer))

    async def dial(self, port: int, address: str = "127.0.0.1") -> socket.socket:
        """Connects to a TCP port that a program inside listens on. Raises OSError when none does, SandboxClosed.

        The socket does not block: give it to `asyncio.open_connection(sock=…)`.
        """
        connected = await self._threads.run(lambda: self.sync.dial(port, address), lambda line: line.close())
        connected.setblocking(False)
        return connected

    @property
    def desktop(self) -> AsyncDesktop:
        """A screen, keyboard, mouse and sound of the sandbox's own, as `Sandbox.desktop`: docs/desktop.md."""
        return AsyncDesktop(self._threads, lambda: self.sync.desktop)

    async def browser(self) -> BrowserEndpoints:
        """Starts a browser inside, unless it runs, as `Sandbox.browser`; raises what that raises."""
        return await self._threads.run(self.sync.browser)

    def on_event(self, handler: Handler) -> Callable[[], None]:
        """Calls `handler` with every event from now on, in the thread where it happens. Returns what unsubscribes it.

        An exception in a handler is printed and otherwise ignored.
        """
        return self.sync.on_event(handler)

    async def stats(self) -> Stats:
        """Returns what the sandbox uses now: memory, processor time, processes. Raises SandboxClosed."""
        return await self._threads.run(self.sync.stats)

    async def pause(self) -> None:
        """Stops everything inside until `resume`, as `Sandbox.pause`; raises what that raises."""
        await self._threads.run(self.sync.pause)

    async def resume(self) -> None:
        """Lets everything inside go on. Raises WallError, SandboxClosed."""
        await self._threads.run(self.sync.resume)

    async def checkpoint(self, name: str | None = None) -> Checkpoint:
        """Saves the sandbox under a name, as `Sandbox.checkpoint`; raises what that raises."""
        return await self._threads.run(lambda: self.sync.checkpoint(name))

    async def fork(self, n: int = 1) -> list[Self]:
        """Returns `n` new sandboxes that go on from here, as `Sandbox.fork`; raises what that raises."""
        forks = await self._threads.run(lambda: self.sync.fork(n), _close_all)
        return [self._around(one) for one in forks]

    @classmethod
    async def restore(cls, name: str, config: Mapping[str, Any] | None = None, *, hooks: object | None = None) -> Self:
        """Starts a sandbox that goes on from a checkpoint, as `Sandbox.restore`; raises what that raises."""
        made = cls(config, hooks=hooks)
        loop = asyncio.get_running_loop()
        made._sandbox = await made._threads.run(
            lambda: Sandbox.restore(name, config, hooks=_asked_in(loop, hooks)), Sandbox.close
        )
        return made

    @classmethod
    def _around(cls, sandbox: Sandbox) -> Self:
        made = cls()
        made._sandbox = sandbox
        return made

    async def extend(
        self, lifetime: float | EllipsisType | None = ..., idle_timeout: float | EllipsisType | None = ...
    ) -> None:
        """Changes how long the sandbox lives: `lifetime` seconds from now, and `idle_timeout` seconds without use.

        None removes that limit. A limit that is not given stays as it is. Raises InvalidArgument, SandboxClosed.
        """
        self.sync.extend(lifetime, idle_timeout)

    async def close(self, grace: float = 0.0) -> None:
        """Ends every tenant and gives everything back. Idempotent; returns when nothing is left.

        Running commands have `grace` seconds to end by themselves; no new one is started meanwhile.
        """
        self._closed = True
        async with self._starting:
            if self._sandbox is not None:
                sandbox = self._sandbox
                await self._threads.run(lambda: sandbox.close(grace))
            self._threads.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _asked_in(loop: asyncio.AbstractEventLoop, hooks: object | None) -> object | None:
    """The same hooks; an `on_ask` that is a coroutine function runs in `loop`, the program's own."""
    hook = getattr(hooks, ASK, None)
    if not iscoroutinefunction(hook):
        return hooks

    def on_ask(ask: Ask) -> Any:
        return asyncio.run_coroutine_threadsafe(hook(ask), loop).result(ask.timeout)

    return SimpleNamespace(**{name: getattr(hooks, name) for name in names_of(hooks)} | {ASK: on_ask})


def _close_all(sandboxes: list[Sandbox]) -> None:
    for one in sandboxes:
        one.close()
