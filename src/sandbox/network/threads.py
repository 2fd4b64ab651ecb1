"""Runs blocking calls (resolvers, the guest, hooks) in threads, away from the event loop.

asyncio's own pool waits for its threads at the end. A resolver that takes half a minute to give up must not keep a
sandbox from closing.
"""

from __future__ import annotations

import asyncio
from _thread import start_new_thread
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs `call` in a new thread; returns its result or raises its exception. Cancelling this does not stop the
    thread."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, problem: BaseException | None) -> None:
        if answer.done():
            return
        if problem is None:
            answer.set_result(result)  # type: ignore[arg-type]
        else:
            answer.set_exception(problem)

    def work() -> None:
        result, problem = None, None
        try:
            result = call(*args, **kwargs)
        except BaseException as raised:  # noqa: BLE001 - passed on to the caller
            problem = raised
        try:
            loop.call_soon_threadsafe(settle, result, problem)
        except RuntimeError:
            pass  # the loop has ended, and the caller with it

    # Not `threading.Thread`: its start() blocks the loop until the thread runs.
    start_new_thread(work, ())
    return await answer


def responds(loop: asyncio.AbstractEventLoop, patience: float) -> bool:
    """Whether the loop of another thread runs a callback within `patience` seconds."""
    from threading import Event

    heard = Event()
    try:
        loop.call_soon_threadsafe(heard.set)
    except RuntimeError:
        return False  # it has ended
    return heard.wait(patience)
