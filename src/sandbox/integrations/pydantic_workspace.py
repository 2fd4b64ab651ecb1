"""Pydantic AI: a workspace whose files and commands are a sandbox's. See docs/integrations/pydantic-ai.md.

Blocking calls run in threads, through anyio: this works with asyncio and trio, and with another process's sandbox.
"""

from __future__ import annotations

import errno
import math
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

import anyio
from pydantic_ai import Tool
from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from sandbox.client import Client
from sandbox.errors import CommandError, SandboxClosed, SandboxError
from sandbox.info import FileInfo
from sandbox.protocols import Process
from sandbox.result import OUTPUT_LIMIT, ExecResult
from sandbox.sandbox import Sandbox
from sandbox.sessions.session import CodeSession

PROVIDER = "agent-sandbox"
CODE_SECONDS = 120.0
CODE_OUTPUT = 100_000

T = TypeVar("T")


class SandboxWorkspace:
    """A backend for `Workspace`: `agent.run(..., workspace=SandboxWorkspace({...}))`.

    The sandbox is made by the first operation. It ends when this is closed, or with the process, whichever comes first.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, *, ref: WorkspaceRef | None = None) -> None:
        """Takes the configuration of a new sandbox, or the `ref` of one that runs. Does nothing yet."""
        self._config, self._ref = config, ref
        self._sandbox: Sandbox | Client | None = None
        self._session: CodeSession | None = None
        self._starting = anyio.Lock()
        self._room = anyio.CapacityLimiter(math.inf)  # no limit: waiting commands must not block file operations

    @property
    def ref(self) -> WorkspaceRef | None:
        """The sandbox's name in the registry, once there is one."""
        return self._ref

    async def working_dir(self) -> str:
        """The project's directory. Raises WorkspaceUnavailableError, and what `Sandbox()` raises."""
        return (await self._started()).directory

    # -- commands

    async def run(
        self,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Runs a command to its end. Cancelling it kills it. Raises the errors of `SupportsCommands.run`."""
        if shell is not isinstance(command, str):
            raise TypeError("a text needs shell=True, and a list of words shell=False")
        if timeout is not None and not (isinstance(timeout, (int, float)) and 0 < timeout < math.inf):
            raise ValueError("timeout must be a positive finite number or None")
        sandbox = await self._started()

        def start() -> Process:
            process = sandbox.spawn(command if isinstance(command, str) else list(command), env=env, timeout=timeout)
            process.close_stdin()
            return process

        try:
            return _finished(await self._to_the_end(await self._in_thread(start)), timeout)
        except CommandError as problem:
            return CommandResult(exit_code=problem.exit_code, stdout="", stderr=f"{problem}\n")

    async def _to_the_end(self, process: Process) -> ExecResult:
        def collect() -> ExecResult:
            with process:
                return process.wait()

        try:
            return await self._in_thread(collect, abandon=True)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._in_thread(process.kill)  # its thread then ends by itself
            raise

    # -- files

    async def read_bytes(self, path: str) -> bytes:
        """A file's content. Raises OSError."""
        sandbox = await self._started()
        return await self._in_thread(lambda: sandbox.read_file(path))

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Makes a file and the directories above it, or replaces its content. Raises OSError."""
        sandbox = await self._started()

        def write() -> None:
            try:
                sandbox.mkdir(posixpath.dirname(path))
            except FileExistsError as problem:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from problem
            sandbox.write_file(path, data)

        await self._in_thread(write)

    async def stat(self, path: str) -> FileEntry:
        """What a path is. Raises OSError."""
        sandbox = await self._started()
        return _entry(path, await self._in_thread(lambda: sandbox.stat(path)))

    async def list_dir(self, path: str) -> list[FileEntry]:
        """What is in a directory. Raises OSError."""
        sandbox = await self._started()
        return await self._in_thread(
            lambda: [_followed(sandbox, posixpath.join(path, one.name), one) for one in sandbox.list_files(path)]
        )

    async def make_dir(self, path: str) -> None:
        """Makes a directory and those above it. Raises OSError."""
        sandbox = await self._started()
        await self._in_thread(lambda: sandbox.mkdir(path))

    async def remove(self, path: str) -> None:
        """Removes a file, or a directory with all that is in it. Raises OSError, and ValueError for the project."""
        sandbox = await self._started()

        def remove() -> None:
            above, name = posixpath.split(posixpath.normpath(path))
            target = posixpath.join(_real(sandbox, above), name)
            if f"{sandbox.directory}/".startswith(f"{target.rstrip('/')}/"):
                raise ValueError(f"{path} is the working directory, or above it")
            sandbox.remove(target, recursive=True)

        await self._in_thread(remove)

    async def exists(self, path: str) -> bool:
        """Whether the path exists. Raises OSError."""
        sandbox = await self._started()
        return await self._in_thread(lambda: sandbox.exists(path))

    async def realpath(self, path: str) -> str:
        """The path with its links resolved inside; missing parts stay as written. Raises OSError."""
        sandbox = await self._started()
        return await self._in_thread(lambda: _real(sandbox, path))

    # -- code

    def code_tool(self, seconds: float = CODE_SECONDS) -> Tool[Any]:
        """A tool for agents: Python in this sandbox that keeps its state between calls."""

        async def run_python(code: str) -> str:
            """Run Python code in a sandbox. Variables, imports and definitions stay; the last line's value is shown."""
            sandbox = await self._started()
            if self._session is None:
                self._session = sandbox.python()
            session = self._session
            done = await self._in_thread(lambda: session.run(code, seconds, max_output=CODE_OUTPUT))
            parts = [done.stdout, done.stderr, done.text or "", done.error.traceback if done.error else ""]
            parts += ["it ran too long and was interrupted; the state is kept"] if done.timed_out else []
            return "\n".join(part for part in parts if part)[: 2 * CODE_OUTPUT] or "(no output)"

        return Tool(run_python)

    # -- its life

    async def close(self) -> None:
        """Ends the sandbox if this made it; one that was found by its ref goes on."""
        if self._sandbox is not None:
            await self._in_thread(self._sandbox.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.close()

    async def _started(self) -> Sandbox | Client:
        async with self._starting:
            if self._sandbox is not None:
                return self._sandbox
            with anyio.CancelScope(shield=True):  # keeps what was made, even if the caller is cancelled
                self._sandbox = made = await self._in_thread(self._start)
            return made

    def _start(self) -> Sandbox | Client:
        if self._ref is not None:
            if self._ref.provider != PROVIDER:
                raise WorkspaceUnavailableError(f"{self._ref.provider} is not {PROVIDER}")
            try:
                return Sandbox.attach(self._ref.id)
            except SandboxError as problem:
                raise WorkspaceUnavailableError(str(problem)) from problem
        made = Sandbox(self._config)
        self._ref = WorkspaceRef(provider=PROVIDER, id=made.id)
        return made

    async def _in_thread(self, what: Callable[[], T], abandon: bool = False) -> T:
        try:
            return await anyio.to_thread.run_sync(what, abandon_on_cancel=abandon, limiter=self._room)
        except SandboxClosed as problem:
            raise WorkspaceUnavailableError(str(problem)) from problem


def _real(sandbox: Sandbox | Client, path: str) -> str:
    done = sandbox.exec(["realpath", "-mz", "--", path])
    if not done.ok:  # a loop
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return os.fsdecode(done.stdout_bytes.removesuffix(b"\0"))


def _finished(done: ExecResult, timeout: float | None) -> CommandResult:
    if done.timed_out:
        raise WorkspaceTimeoutError(f"it ran longer than {timeout} seconds", stdout=done.stdout, stderr=done.stderr)
    if done.truncated:
        raise WorkspaceOutputLimitError(
            f"it printed more than {OUTPUT_LIMIT} bytes", limit=OUTPUT_LIMIT, stdout=done.stdout, stderr=done.stderr
        )
    return CommandResult(exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr)


def _entry(path: str, info: FileInfo) -> FileEntry:
    size = info.size if info.kind == "file" else None
    return FileEntry(name=posixpath.basename(path), path=path, is_dir=info.kind == "directory", size=size)


def _followed(sandbox: Sandbox | Client, path: str, info: FileInfo) -> FileEntry:
    if info.kind not in ("file", "directory"):
        try:
            info = sandbox.stat(path)  # what a link leads to
        except OSError:
            pass
    return _entry(path, info)
