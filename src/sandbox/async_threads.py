"""Threads in which an asyncio program waits for what blocks: neither its loop nor another sandbox is held up."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
MOST_AT_ONCE = 1024


class Threads:
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
