"""Work that continues after its caller has left, because its result would be lost: above all, new tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine
    from typing import Any, TypeVar

    T = TypeVar("T")

FINISH = 10.0  # seconds that the sandbox's end waits for it


class UnfinishedTasks:
    """The tasks of one sandbox that its end waits for."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts `work` as a task that nobody cancels."""
        import asyncio  # not above: this module is loaded when a sandbox with secrets starts

        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not warn; a caller that still waits gets it too

    async def finish(self) -> None:
        """Waits, for a while, until nothing is unfinished."""
        import asyncio

        if self._tasks:
            await asyncio.wait(self._tasks, timeout=FINISH)
