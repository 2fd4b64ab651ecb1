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
    """Work with a result that its caller may no longer want; then the thread that produced the result undoes it.

    The loop cannot do that: an interrupted program ends its loop at once, and what runs in the sandbox would stay.
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
        """The result is not wanted any more. Returns whether it exists already; then the caller must undo it."""
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
        """What `work` returns. When the caller is cancelled meanwhile, `undo` gets the result."""
        loop = asyncio.get_running_loop()
        # When the sandbox is closed there is no pool: the loop's own threads do what is still asked.
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
        """Starts no further threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
