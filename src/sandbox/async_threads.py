"""Threads in which an asyncio program waits for what blocks: neither its loop nor another sandbox is held up."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
MOST_AT_ONCE = 1024


class _Handing(Generic[T]):
    """Work whose result somebody takes, or nobody: then the thread that made it undoes it.

    Not the loop: a program that was interrupted ends its loop at once, and what runs in the sandbox would stay.
    """

    def __init__(self, work: Callable[[], T], undo: Callable[[T], object]) -> None:
        self._work, self._undo = work, undo
        self._changing = Lock()
        self._abandoned = False
        self._made: list[T] = []

    def work(self) -> T:
        result = self._work()
        with self._changing:
            self._made.append(result)
            abandoned = self._abandoned
        if abandoned:
            self.undo()
        return result

    def abandon(self) -> bool:
        """Nobody takes the result. Whether it is there already, and the caller's to undo."""
        with self._changing:
            self._abandoned = True
            return bool(self._made)

    def undo(self) -> None:
        self._undo(self._made[0])


class Threads:
    """Runs what blocks, for one sandbox."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="sandbox")

    async def run(self, work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """What `work` returns. When the caller is cancelled meanwhile, its result is given to `undo`."""
        loop = asyncio.get_running_loop()
        # Without a pool the sandbox is closed: what is asked still gets its answer, in one of the loop's threads.
        if undo is None:
            return await asyncio.shield(loop.run_in_executor(self._pool, work))
        handing = _Handing(work, undo)
        try:
            return await asyncio.shield(loop.run_in_executor(self._pool, handing.work))
        except asyncio.CancelledError:
            if handing.abandon():
                await asyncio.shield(loop.run_in_executor(self._pool, handing.undo))
            raise

    def close(self) -> None:
        """No further threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
