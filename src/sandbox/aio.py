"""The same sandbox for asyncio programs: every method of `Sandbox`, as a coroutine.

Waiting happens in threads of the sandbox's own, one per call under way, so that neither the loop nor another sandbox is
held up. A cancelled `exec` kills its command.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore
from typing import TYPE_CHECKING, Any, TypeVar

from sandbox.commands import OUTPUT_LIMIT
from sandbox.config.section import owned
from sandbox.result import Chunk, Collector, ExecResult
from sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from typing import Self

    from sandbox.commands import Command
    from sandbox.config.model import Config
    from sandbox.events import Handler
    from sandbox.guest.process import Process
    from sandbox.vfs.changes import Change
    from sandbox.vfs.workspace import Applied

T = TypeVar("T")
MOST_AT_ONCE = 1024


class AsyncSandbox:
    """`async with AsyncSandbox(config) as sb: await sb.exec(...)`. The walls are built on entering, or by `start()`."""

    def __init__(self, config: Config | Mapping[str, Any] | None = None, **more: Any) -> None:
        self._config = owned(config)  # now: what the caller does to it before `start()` is not for us
        self._more = more
        self._sandbox: Sandbox | None = None
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="sandbox")

    async def start(self) -> Self:
        """Builds the walls. Raises what `Sandbox()` raises."""
        self._sandbox = await self._in_thread(lambda: Sandbox(self._config, **self._more))
        return self

    @property
    def sync(self) -> Sandbox:
        """The sandbox itself, for what needs no waiting."""
        if self._sandbox is None:
            raise RuntimeError("not started: use `async with`, or await start()")
        return self._sandbox

    @property
    def id(self) -> str:
        return self.sync.id

    async def exec(
        self,
        command: Command,
        working_dir: str | None = None,
        *,
        max_output: int = OUTPUT_LIMIT,
        **options: Any,
    ) -> ExecResult:
        """As `Sandbox.exec`; cancelling it kills the command."""
        out, err = Collector(max_output), Collector(max_output)
        async for item in self.exec_stream(command, working_dir, **options):
            if isinstance(item, Chunk):
                (out if item.stream == "stdout" else err).add(item.data)
            else:
                item.stdout_bytes, item.stderr_bytes = out.value(), err.value()
                item.truncated = out.truncated or err.truncated
                return item
        raise AssertionError("a stream ends with its result")

    async def exec_stream(
        self, command: Command, working_dir: str | None = None, **options: Any
    ) -> AsyncIterator[Chunk | ExecResult]:
        """As `Sandbox.exec_stream`; the command is killed when the caller stops listening or is cancelled."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[Chunk | ExecResult | BaseException] = asyncio.Queue()
        room = Semaphore(64)  # chunks that have not been taken yet: a slow listener slows the command down
        process = await self._in_thread(lambda: self.sync.begin(command, working_dir, **options))

        listening = True

        def pump() -> None:
            try:
                for chunk in process.chunks():
                    if listening:
                        room.acquire()
                        loop.call_soon_threadsafe(arrived.put_nowait, chunk)
                assert process.result is not None
                loop.call_soon_threadsafe(arrived.put_nowait, process.result)
            except BaseException as problem:  # noqa: BLE001 - it is raised again where the caller waits
                loop.call_soon_threadsafe(arrived.put_nowait, problem)

        pumping = loop.run_in_executor(self._threads, pump)
        try:
            while True:
                item = await arrived.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
                if isinstance(item, ExecResult):
                    return
                room.release()
        finally:
            listening = False
            process.kill()  # nothing happens when it has ended by itself
            room.release()
            await asyncio.shield(pumping)
            process.close()

    async def spawn(self, command: Command, working_dir: str | None = None, **options: Any) -> Process:
        """As `Sandbox.spawn`."""
        return await self._in_thread(lambda: self.sync.spawn(command, working_dir, **options))

    async def write_file(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        await self._in_thread(lambda: self.sync.write_file(path, content, mode))

    async def read_file(self, path: str) -> bytes:
        return await self._in_thread(lambda: self.sync.read_file(path))

    async def list_files(self, path: str = ".") -> list[dict[str, Any]]:
        return await self._in_thread(lambda: self.sync.list_files(path))

    async def stat(self, path: str) -> dict[str, Any]:
        return await self._in_thread(lambda: self.sync.stat(path))

    async def mkdir(self, path: str, mode: int = 0o755, parents: bool = True) -> None:
        await self._in_thread(lambda: self.sync.mkdir(path, mode, parents))

    async def remove(self, path: str, recursive: bool = False) -> None:
        await self._in_thread(lambda: self.sync.remove(path, recursive))

    async def rename(self, old: str, new: str) -> None:
        await self._in_thread(lambda: self.sync.rename(old, new))

    async def changes(self) -> list[Change]:
        return await self._in_thread(self.sync.changes)

    async def apply(self, paths: Sequence[str] | None = None) -> Applied:
        return await self._in_thread(lambda: self.sync.apply(paths))

    async def discard(self) -> None:
        await self._in_thread(self.sync.discard)

    def on_event(self, handler: Handler) -> Callable[[], None]:
        """As `Sandbox.on_event`; called in whichever thread the event happens."""
        return self.sync.on_event(handler)

    async def close(self) -> None:
        """Ends the sandbox. Idempotent."""
        if self._sandbox is not None:
            await self._in_thread(self._sandbox.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
