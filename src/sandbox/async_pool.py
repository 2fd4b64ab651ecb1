"""The same pool for asyncio programs: `get` gives an AsyncSandbox, `map` takes coroutine functions, too."""

from __future__ import annotations

import asyncio
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar

from sandbox import arguments
from sandbox.aio import AsyncSandbox, _asked_in
from sandbox.async_threads import Threads
from sandbox.config.section import owned
from sandbox.errors import SandboxClosed
from sandbox.hook_names import names_of
from sandbox.pool.mapped import given_for, with_item
from sandbox.pool.outcome import HOPELESS, Outcome, Retries, checked_concurrency, checked_retries, failed, judged
from sandbox.pool.pool import Pool
from sandbox.pool.progress import Bar
from sandbox.pool.shelf import MAX_AGE

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
    from typing import Self

    from sandbox.arguments import Command
    from sandbox.config.from_program import Given
    from sandbox.pool.mapped import Give
    from sandbox.pool.shelf import PoolStats

T = TypeVar("T")


class AsyncPool:
    """`async with AsyncPool(config, size=8) as pool: sb = await pool.get()`. See `Pool`."""

    def __init__(
        self,
        config: Given = None,
        *,
        size: int = 4,
        late_project: bool = False,
        max_age: float = MAX_AGE,
        hooks: object | None = None,
        resolve: Callable[[str, int], Sequence[str]] | None = None,
    ) -> None:
        """Takes what `Pool` takes. Raises ConfigError for misspelt hooks; everything else is checked by `start`."""
        if hooks is not None:
            names_of(hooks)
        self._config = owned(config)
        self._hooks = hooks
        self._more: dict[str, Any] = {
            "size": size, "late_project": late_project, "max_age": max_age, "resolve": resolve,
        }  # fmt: skip
        self._pool: Pool | None = None
        self._closed = False
        self._starting = asyncio.Lock()
        self._threads = Threads()

    async def start(self) -> Self:
        """Begins to build, unless it has already. Raises what `Pool()` raises, and SandboxClosed."""
        if self._closed:
            raise SandboxClosed("the pool is closed")
        async with self._starting:
            if self._pool is None and not self._closed:
                loop = asyncio.get_running_loop()
                made = await self._threads.run(
                    lambda: Pool(self._config, hooks=_asked_in(loop, self._hooks), **self._more), Pool.close
                )
                self._pool = made
        if self._closed:  # meanwhile; `close` waits for us and ends what was built
            raise SandboxClosed("the pool is closed")
        return self

    @property
    def sync(self) -> Pool:
        """The pool itself. Raises RuntimeError before `start`."""
        if self._pool is None:
            raise RuntimeError("not started: use `async with`, or await start()")
        return self._pool

    async def get(
        self,
        *,
        project: str | os.PathLike[str] | None = None,
        secrets: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> AsyncSandbox:
        """Hands out a sandbox, as `Pool.get`; raises what that raises."""
        made = await self._threads.run(
            lambda: self.sync.get(project=project, secrets=secrets, environment=environment), lambda one: one.close()
        )
        return AsyncSandbox._around(made)

    async def map(
        self,
        work: Command | Callable[[AsyncSandbox, Any], Any],
        items: Iterable[Any],
        *,
        concurrency: int | None = None,
        timeout: float | None = None,
        retries: Mapping[str, int] | None = None,
        give: Give = None,
        progress: bool | None = None,
    ) -> AsyncIterator[Outcome]:
        """Does `work` for each item, each in a sandbox of its own, and yields the outcomes as they come.

        As `Pool.map`; a function gets an AsyncSandbox and may be a coroutine function. Stopping the iteration (with
        `aclose`), or being cancelled, ends every sandbox that is in use. Raises InvalidArgument, and any error that
        would meet every item, such as ConfigError.
        """
        most = checked_concurrency(concurrency, self.sync.size)
        mapping = _Mapping(self.get, _runner(work, arguments.seconds(timeout)), checked_retries(retries), give)
        source = enumerate(items)
        bar = Bar(items, progress)
        under_way: set[asyncio.Task[Outcome]] = set()
        try:
            while True:
                while len(under_way) < most and (taken := next(source, None)) is not None:
                    under_way.add(asyncio.create_task(mapping.tried(*taken)))
                if not under_way:
                    return
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for one in sorted((task.result() for task in done), key=lambda outcome: outcome.index):
                    bar.done(one.ok)
                    yield one
        finally:
            bar.close()
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def fill(self, timeout: float | None = None) -> bool:
        """Waits until all are ready, or `timeout` seconds. Returns whether they are. Raises the last build's error."""
        return await self._threads.run(lambda: self.sync.fill(timeout))

    async def stats(self) -> PoolStats:
        """Returns how many are ready, and how many were built, handed out and discarded. Raises RuntimeError."""
        return self.sync.stats()

    async def close(self) -> None:
        """Ends the sandboxes that were not handed out; the others go on. Idempotent."""
        self._closed = True
        async with self._starting:
            if self._pool is not None:
                await self._threads.run(self._pool.close)
            self._threads.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Mapping:
    """What every item of one `map` has in common."""

    def __init__(self, get: Any, run: Any, retries: Mapping[str, int], give: Give) -> None:
        self._get = get
        self._run = run
        self._retries = retries
        self._give = give

    async def tried(self, index: int, item: Any) -> Outcome:
        retries = Retries(self._retries)
        while True:
            outcome = await self._once(index, item, retries.attempts)
            if not retries.again(outcome):
                return outcome

    async def _once(self, index: int, item: Any, attempts: int) -> Outcome:
        given = given_for(self._give, item)
        try:
            sandbox = await _to_its_end(self._get(**given), AsyncSandbox.close)
        except HOPELESS:
            raise
        except Exception as problem:  # noqa: BLE001 - it is this item's, and others may succeed
            return failed(index, item, problem, attempts)
        try:
            return judged(index, item, await self._run(sandbox, item), attempts)
        except Exception as problem:  # noqa: BLE001 - what the work raised is its outcome
            return failed(index, item, problem, attempts)
        finally:
            await _to_its_end(sandbox.close())


async def _to_its_end(work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[object]] | None = None) -> T:
    """What `work` returns. When cancelled, it still runs to its end, and `undo` gets the result: nothing is left."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        if undo is not None and task.exception() is None:
            await undo(task.result())
        raise asyncio.CancelledError
    return task.result()


def _runner(work: Command | Callable[[AsyncSandbox, Any], Any], timeout: float | None) -> Callable[..., Any]:
    if callable(work):
        function = work

        async def call(sandbox: AsyncSandbox, item: Any) -> Any:
            if iscoroutinefunction(function):
                return await function(sandbox, item)
            return await asyncio.to_thread(function, sandbox, item)

        return call
    command = work
    arguments.words(command)

    async def run(sandbox: AsyncSandbox, item: Any) -> Any:
        return await sandbox.exec(with_item(command, item), timeout=timeout)

    return run
