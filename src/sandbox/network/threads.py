"""Calls that block (resolvers, the guest), out of the event loop's way.

Not asyncio's own pool: its threads are waited for at the end, and a resolver that takes half a minute to give up must
not keep a sandbox from closing.
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
    """What `call` returns or raises, from a thread of its own. Abandoned, not stopped, when this is cancelled."""
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
        except BaseException as raised:  # noqa: BLE001 - whatever it is, it is the caller's
            problem = raised
        try:
            loop.call_soon_threadsafe(settle, result, problem)
        except RuntimeError:
            pass  # the loop has ended meanwhile, and with it whoever asked

    # Not `threading.Thread`, whose start waits, with the loop, until the thread has its first turn.
    start_new_thread(work, ())
    return await answer
