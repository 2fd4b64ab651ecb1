"""What a cancelled caller began is undone, whatever becomes of its loop."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from sandbox.async_threads import Threads


@pytest.mark.parametrize("when", ["in the loop", "after the loop has ended"])
def test_what_nobody_takes_is_undone(when: str) -> None:
    threads = Threads()
    begun, finish, undone = Event(), Event(), Event()
    given: list[int] = []

    def work() -> int:
        begun.set()
        finish.wait()
        return 7

    def undo(result: int) -> None:
        given.append(result)
        undone.set()

    async def main() -> None:
        task = asyncio.create_task(threads.run(work, undo))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if when == "in the loop":
            finish.set()
            await asyncio.to_thread(undone.wait)

    asyncio.run(main())
    finish.set()
    assert undone.wait(120) and given == [7]
    threads.close()
