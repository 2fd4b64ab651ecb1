"""The connection to an external decider: who waits for which answer. It ends when the decider breaks the protocol.

A request is refused unless a well-formed `allow` for it arrives in time. Everything runs in one event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sandbox.network.decider.messages import MAX_BODY, MAX_FRAME, Broken, body_frame, frame, hello, read, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TIMEOUT = 5.0  # seconds for each verdict
_REMEMBERED = 4096  # numbers: a late answer to one of them is not an error
_MOST_HELD = 2 * MAX_BODY  # bytes of bodies that the decider is looking at
_MOST_QUEUED = _MOST_HELD * 4 // 3 + MAX_BODY  # bytes it has not read, after which it counts as gone


class Unavailable(Exception):
    """There is no verdict. Its text says why."""


class DeciderConnection:
    """Calls `dead(why)` once, when no more questions can be asked."""

    def __init__(self, dead: Callable[[str], None]) -> None:
        self._dead = dead
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._late: dict[int, bool] = {}  # numbers that nobody waits for any more: whether their body was asked for
        self._last = 0
        self._held = 0
        self._reading: asyncio.Task[None] | None = None
        self.greeted: asyncio.Future[tuple[list[str], list[str]]] = asyncio.get_running_loop().create_future()
        self.why: str | None = None  # why it ended

    def start(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Sends the greeting and begins to read."""
        self._writer = writer
        self._send(frame({"t": "hello", "proto": 1}))
        self._reading = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                if size > MAX_FRAME:
                    raise Broken("oversized frame")
                self._take(read(await reader.readexactly(size)))
        except asyncio.IncompleteReadError:
            self.end("decider closed the stream")
        except Broken as problem:
            self.end(str(problem))
        except OSError as problem:
            self.end(f"read error: {problem.strerror}")

    def _take(self, said: dict[str, Any]) -> None:
        if not self.greeted.done():
            self.greeted.set_result(hello(said))
            return
        said = verdict(said)
        number = said["id"]
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(said)
        elif number in self._late:
            if said["action"] == "need_body" and self._late[number]:
                raise Broken("need_body where none may come")
            if said["action"] != "need_body":
                del self._late[number]
        elif self._last - number < _REMEMBERED:
            raise Broken(f"verdict for id {number}, which nothing waits on")

    def end(self, why: str) -> None:
        """Ends the link: no more questions can be asked, and everyone who waits gets Unavailable."""
        if self.why is not None:
            return
        self.why = why
        futures: list[asyncio.Future[Any]] = [*self._waiting.values(), self.greeted]
        for waiting in futures:
            if not waiting.done():
                waiting.set_exception(Unavailable(why))
                waiting.exception()  # retrieved, so that asyncio does not warn when nobody waits
        self._waiting.clear()
        if self._writer is not None:
            self._writer.close()
        self._dead(why)

    def _send(self, data: bytes) -> None:
        assert self._writer is not None
        if self.why is None:
            self._writer.write(data)
            if self._writer.transport.get_write_buffer_size() > _MOST_QUEUED:
                self.end("the decider does not read")

    # -- requests

    def ask(self, fields: Mapping[str, Any]) -> DeciderQuestion:
        """Asks about a request. Raises Unavailable."""
        if self.why is not None or not self.greeted.done():
            raise Unavailable(self.why or "not ready")
        self._last += 1
        question = DeciderQuestion(self, self._last)
        question.expect()
        self._send(frame({"t": "req", "id": self._last, **fields}))
        return question

    def expect(self, number: int) -> asyncio.Future[dict[str, Any]]:
        """The future for the next verdict about `number`. Raises Unavailable."""
        if self.why is not None:
            raise Unavailable(self.why)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        return self._waiting[number]

    def forget(self, number: int, *, shown: bool) -> None:
        """Nobody waits for `number` any more; `shown`: its body was asked for."""
        if self._waiting.pop(number, None) is not None and self.why is None:
            self._late[number] = shown
            while self._late and self._last - next(iter(self._late)) >= _REMEMBERED:
                del self._late[next(iter(self._late))]

    def show(self, number: int, data: bytes, cut: bool) -> None:
        """Sends a body that was asked for."""
        self._send(body_frame(number, data, cut))

    def hold(self, size: int) -> None:
        """Counts `size` more bytes of bodies kept for the decider, or fewer when it is negative. Raises Unavailable."""
        if size > 0 and self._held + size > _MOST_HELD:
            raise Unavailable("too many request bodies held for inspection")
        self._held += size


class DeciderQuestion:
    """A question to the decider about one request."""

    def __init__(self, link: DeciderConnection, number: int) -> None:
        self._link, self._number = link, number
        self._next: asyncio.Future[dict[str, Any]] | None = None
        self._shown = False

    def expect(self) -> None:
        """A verdict may come from now on."""
        self._next = self._link.expect(self._number)

    @property
    def next(self) -> asyncio.Future[dict[str, Any]]:
        """The verdict that may come."""
        assert self._next is not None
        return self._next

    async def verdict(self) -> dict[str, Any]:
        """The next verdict. Raises Unavailable."""
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self.next
        except TimeoutError:
            raise Unavailable("decider timed out") from None
        finally:
            self._link.forget(self._number, shown=self._shown)

    def looks(self) -> None:
        """Notes that the decider asked for the body. While the body is read, only a `deny` may come."""
        self._shown = True
        self.expect()

    def show(self, data: bytes, cut: bool) -> None:
        """Sends the body."""
        if self.next.done():
            raise Unavailable("the decider answered before it was sent the body")
        self._link.show(self._number, data, cut)

    def drop(self) -> None:
        """The request is refused without another verdict."""
        self._link.forget(self._number, shown=self._shown)

    def broke(self, why: str) -> Unavailable:
        """Ends the link because the decider sent something that is not allowed now."""
        self._link.end(why)
        return Unavailable("decider broke the protocol")
