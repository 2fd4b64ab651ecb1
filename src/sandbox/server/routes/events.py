"""Events of sandboxes as they happen: of one sandbox, or of all that a token reaches."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from litestar import Request, get
from litestar.params import Parameter
from litestar.response import Stream

from sandbox.errors import SandboxError
from sandbox.server import sse
from sandbox.server.guard import require
from sandbox.server.reach import Reached
from sandbox.server.scopes import Access
from sandbox.server.server import Server

LOOK = 1.0  # seconds between checks for sandboxes that others have started
_QUEUE = 5000

Watch = Annotated[bool, Parameter(description="somebody answers here: questions wait (scope `answer`)")]


@get("/v1/sandboxes/{id:str}/events", opt={"verb": "read"})
async def recent(reached: Reached, limit: Annotated[int, Parameter(ge=1, le=500)] = 100) -> dict[str, Any]:
    """The latest events of one sandbox since this server has known it."""
    return {"events": [{"number": number, **event} for number, event in reached.recent(limit)]}


@get("/v1/events/stream", opt={"verb": "read"}, media_type="text/event-stream")
async def stream(request: Request[Any, Any, Any], server: Server, access: Access, watch: Watch = False) -> Stream:
    """Events of every running sandbox that the token reaches: `{"sandbox": id, "type": …, …}`.

    With `watch`, questions to the owner wait as long as this stream is open. A slow reader loses events and learns how
    many; the record (`/v1/audit/stream`) loses none.
    """
    if watch:
        require(access, "answer")
    return sse.response(_all(server, access, watch))


async def _all(server: Server, access: Access, watch: bool) -> AsyncIterator[bytes]:
    from sandbox.asks.stored_answers import watching

    held = watching() if watch else None
    inbox = _Inbox()
    following: dict[str, Callable[[], None]] = {}
    try:
        yield b": events\n\n"
        quiet = 0.0
        while True:
            await server.run(lambda: _follow_new(server, access, following, inbox), lambda _: _unfollow(following))
            if not await server.pause(inbox.changed, LOOK):
                return
            events, lost = inbox.take()
            if lost:
                yield sse.event("lost", {"count": lost})
            if events:
                yield b"".join(sse.event("event", one) for one in events)
            quiet = 0.0 if events else quiet + LOOK
            if quiet >= sse.PAUSE:
                quiet = 0.0
                yield sse.KEEP_ALIVE
    finally:
        _unfollow(following)
        if held is not None:
            os.close(held)


class _Inbox:
    """Passes events from the threads where they happen to one reader in the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: deque[dict[str, Any]] = deque()
        self._lost = 0
        self.changed = asyncio.Event()

    def put(self, event: dict[str, Any]) -> None:
        if len(self._events) >= _QUEUE:
            self._lost += 1
            return
        self._events.append(event)
        try:
            self._loop.call_soon_threadsafe(self.changed.set)
        except RuntimeError:
            pass  # the loop has ended

    def take(self) -> tuple[list[dict[str, Any]], int]:
        self.changed.clear()
        events, lost = [], self._lost
        self._lost = 0
        while self._events:
            events.append(self._events.popleft())
        return events, lost


def _follow_new(server: Server, access: Access, following: dict[str, Callable[[], None]], inbox: _Inbox) -> None:
    entries = server.sandboxes.list()
    for gone in set(following) - {entry.id for entry in entries if entry.running}:
        following.pop(gone)()
    for entry in entries:
        if not entry.running or entry.id in following:
            continue
        try:
            reached = server.reach.get(entry.id, access)
            following[entry.id] = reached.follow(_put(inbox, reached), after=None)
            inbox.put({"type": "seen", "sandbox": entry.id})
            for ask in reached.sandbox.asks():
                inbox.put({"type": "ask", "sandbox": entry.id, "ask": dict(ask)})
        except (SandboxError, OSError):
            continue  # it has ended meanwhile; the others go on


def _unfollow(following: dict[str, Callable[[], None]]) -> None:
    while following:
        following.popitem()[1]()


def _put(inbox: _Inbox, reached: Reached) -> Callable[[int, dict[str, Any]], object]:
    return lambda number, event: inbox.put({"sandbox": reached.id, "number": number, **event})


ROUTES = [recent, stream]
