"""The same sandbox for asyncio programs: every method of `Sandbox`, as a coroutine.

Waiting happens in threads of the sandbox's own, one per call under way, so that neither the loop nor another sandbox is
held up. A cancelled `exec` kills its command; anything else that was begun goes on in its thread, and what it would
have returned is given back.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from inspect import iscoroutinefunction
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from sandbox import arguments
from sandbox.async_process import AsyncProcess
from sandbox.config.section import owned
from sandbox.errors import SandboxClosed
from sandbox.file_methods import FILE_LIMIT
from sandbox.hook_names import ASK, names_of
from sandbox.result import OUTPUT_LIMIT, Chunk, ExecResult, Output
from sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from types import EllipsisType
    from typing import Self

    from sandbox.arguments import Command, Path
    from sandbox.config.model import Config
    from sandbox.events import Handler
    from sandbox.info import Ask, FileInfo, Port, ProcessInfo, Stats
    from sandbox.protocols import Process
    from sandbox.result import Listener
    from sandbox.vfs.changes import Change
    from sandbox.vfs.workspace import Applied

T = TypeVar("T")
MOST_AT_ONCE = 1024


class _Threads:
    """Runs what blocks, for one sandbox."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="sandbox")

    async def run(self, work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """What `work` returns. When the caller is cancelled meanwhile, its result is given to `undo`."""
        # Without a pool the sandbox is closed: what is asked still gets its answer, in one of the loop's threads.
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(lambda done: self._undo(done, undo))
            raise

    def _undo(self, done: asyncio.Future[T], undo: Callable[[T], object] | None) -> None:
        if not done.cancelled() and done.exception() is None and undo is not None:
            result = done.result()
            asyncio.get_running_loop().run_in_executor(self._pool, lambda: undo(result))

    def close(self) -> None:
        """No further threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


class AsyncSandbox:
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
        self._config = owned(config)  # now: what the caller does to it before `start()` is not for us
        self._hooks, self._command, self._resolve = hooks, command, resolve
        self._sandbox: Sandbox | None = None
        self._closed = False
        self._threads = _Threads()

    async def start(self) -> Self:
        """Builds the walls, unless they stand. Raises what `Sandbox()` raises, and SandboxClosed."""
        if self._closed:
            raise SandboxClosed("the sandbox is closed")
        if self._sandbox is None:
            loop = asyncio.get_running_loop()
            self._sandbox = await self._threads.run(lambda: self._build(loop), Sandbox.close)
        return self

    def _build(self, loop: asyncio.AbstractEventLoop) -> Sandbox:
        hooks = _asked_in(loop, self._hooks)
        return Sandbox(self._config, hooks=hooks, command=self._command, resolve=self._resolve)

    @property
    def sync(self) -> Sandbox:
        """The sandbox itself, for what needs no waiting.

        Raises RuntimeError before `start`, SandboxClosed when it was closed before that.
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

        Who stops iterating, or is cancelled, kills the command. A reader that is slow slows the command down. Raises
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

        Raises NotFound when none of that name runs.
        """
        return await self._process(lambda: self.sync.connect(name))

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

    # -- files

    async def read_file(self, path: Path, max_bytes: int = FILE_LIMIT) -> bytes:
        """Returns the content of a file inside. Raises OSError, also when it has more than `max_bytes` bytes."""
        return await self._threads.run(lambda: self.sync.read_file(path, max_bytes))

    async def write_file(self, path: Path, content: bytes | str, mode: int = 0o644) -> None:
        """Makes a file inside, with permissions `mode`, or replaces the content of one that exists. Raises OSError."""
        await self._threads.run(lambda: self.sync.write_file(path, content, mode))

    async def read_text(self, path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Returns the content of a file inside as text. Raises OSError, and UnicodeDecodeError."""
        return await self._threads.run(lambda: self.sync.read_text(path, encoding, errors))

    async def write_text(self, path: Path, text: str, encoding: str = "utf-8", mode: int = 0o644) -> None:
        """Makes a file inside, or replaces its content, with text. Raises OSError, and UnicodeEncodeError."""
        await self._threads.run(lambda: self.sync.write_text(path, text, encoding, mode))

    async def list_files(self, path: Path = ".") -> list[FileInfo]:
        """Returns what is in a directory inside. Links are not followed. Raises OSError."""
        return await self._threads.run(lambda: self.sync.list_files(path))

    async def stat(self, path: Path) -> FileInfo:
        """Returns what a path inside is; a link is followed. Raises OSError."""
        return await self._threads.run(lambda: self.sync.stat(path))

    async def exists(self, path: Path) -> bool:
        """Whether there is something at `path` inside; a link counts when it leads to something.

        Raises OSError for anything but "not there", as when a tenant may not look.
        """
        return await self._threads.run(lambda: self.sync.exists(path))

    async def mkdir(self, path: Path, mode: int = 0o755, parents: bool = True) -> None:
        """Makes a directory inside; with `parents` those above it too, and one that is there is no error.

        Raises OSError.
        """
        await self._threads.run(lambda: self.sync.mkdir(path, mode, parents))

    async def remove(self, path: Path, recursive: bool = False) -> None:
        """Removes a file, a link or an empty directory inside; with `recursive` all that is in one. Raises OSError."""
        await self._threads.run(lambda: self.sync.remove(path, recursive))

    async def rename(self, old: Path, new: Path) -> None:
        """Renames inside, replacing a file that is at `new`. Raises OSError."""
        await self._threads.run(lambda: self.sync.rename(old, new))

    async def chmod(self, path: Path, mode: int) -> None:
        """Changes the permissions of a file or directory inside; a link is followed. Raises OSError."""
        await self._threads.run(lambda: self.sync.chmod(path, mode))

    async def symlink(self, target: Path, path: Path) -> None:
        """Makes `path` inside a symbolic link to `target`, which is kept as it is given. Raises OSError."""
        await self._threads.run(lambda: self.sync.symlink(target, path))

    async def read_link(self, path: Path) -> str:
        """Returns where a symbolic link inside points to. Raises OSError (EINVAL) when it is no link."""
        return await self._threads.run(lambda: self.sync.read_link(path))

    async def upload(self, source: Path, target: Path) -> list[str]:
        """Copies a file or directory of the host to `target` inside, as `Sandbox.upload`. Raises OSError."""
        return await self._threads.run(lambda: self.sync.upload(source, target))

    async def download(self, source: Path, target: Path) -> list[str]:
        """Copies a file or directory inside to `target` on the host, as `Sandbox.download`. Raises OSError."""
        return await self._threads.run(lambda: self.sync.download(source, target))

    # -- an overlay project's changes

    async def changes(self) -> list[Change]:
        """Returns what tenants changed in an overlay project (`filesystem.overlay`), compared with the host's files.

        Works after `close`, too. Raises NotFound when the sandbox keeps no changes.
        """
        return await self._threads.run(self.sync.changes)

    async def apply(self, paths: Sequence[str] | None = None, overwrite: bool = False) -> Applied:
        """Carries changes over to the host's files, as `Sandbox.apply`. Raises NotFound when there are none kept."""
        return await self._threads.run(lambda: self.sync.apply(paths, overwrite))

    async def discard(self) -> None:
        """Ends the sandbox and throws the changes away. Raises NotFound when the sandbox keeps no changes."""
        await self._threads.run(self.sync.discard)

    # -- the rest

    async def update_network(self, changes: Mapping[str, Any]) -> None:
        """Changes the network's configuration; new connections see it at once. Raises ConfigError, changing nothing."""
        await self._threads.run(lambda: self.sync.update_network(changes))

    async def asks(self, watch: bool = False) -> list[Ask]:
        """Returns the questions that wait for an answer (docs/asks.md), the oldest first.

        With `watch`, somebody here follows `ask` events and answers from now on, so questions wait for that. Raises
        SandboxClosed.
        """
        return await self._threads.run(lambda: self.sync.asks(watch))

    async def answer(self, id: int, answer: str) -> None:
        """Answers a question: "once", "sandbox" (until this one ends), "always" (in the user's config too) or "deny".

        Raises NotFound when it was answered or its time is over, InvalidArgument, and SandboxError when the config
        cannot be written.
        """
        await self._threads.run(lambda: self.sync.answer(id, answer))

    async def dial(self, port: int, address: str = "127.0.0.1") -> socket.socket:
        """Connects to a TCP port that a program inside listens on. Raises OSError when nobody does, SandboxClosed.

        The socket does not block: give it to `asyncio.open_connection(sock=…)`.
        """
        connected = await self._threads.run(lambda: self.sync.dial(port, address), lambda line: line.close())
        connected.setblocking(False)
        return connected

    def on_event(self, handler: Handler) -> Callable[[], None]:
        """Calls `handler` with every event from now on, in the thread where it happens. Returns what ends that.

        What a handler raises is printed, and changes nothing.
        """
        return self.sync.on_event(handler)

    async def stats(self) -> Stats:
        """Returns what the sandbox uses now: memory, processor time, processes. Raises SandboxClosed."""
        return await self._threads.run(self.sync.stats)

    async def extend(
        self, lifetime: float | EllipsisType | None = ..., idle_timeout: float | EllipsisType | None = ...
    ) -> None:
        """Changes how long the sandbox lives: `lifetime` seconds from now, and `idle_timeout` seconds without use.

        None: no such end. What is not given stays as it is. Raises InvalidArgument, SandboxClosed.
        """
        self.sync.extend(lifetime, idle_timeout)

    async def close(self, grace: float = 0.0) -> None:
        """Ends every tenant and gives everything back. Idempotent; returns when nothing is left.

        Commands that run have `grace` seconds to end by themselves; no new one is started meanwhile.
        """
        self._closed = True
        if self._sandbox is not None:
            sandbox = self._sandbox
            await self._threads.run(lambda: sandbox.close(grace))
        self._threads.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _asked_in(loop: asyncio.AbstractEventLoop, hooks: object | None) -> object | None:
    """The same hooks; an `on_ask` that is a coroutine function runs in `loop`, where the program's own things are."""
    hook = getattr(hooks, ASK, None)
    if not iscoroutinefunction(hook):
        return hooks

    def on_ask(ask: Ask) -> Any:
        return asyncio.run_coroutine_threadsafe(hook(ask), loop).result(ask.timeout)

    return SimpleNamespace(**{name: getattr(hooks, name) for name in names_of(hooks)} | {ASK: on_ask})
