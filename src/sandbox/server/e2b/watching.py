"""Watches a directory in a sandbox, with a small program inside (`drivers/watch.py`) that reports what happens there.

It runs inside because inotify works there with every engine. Its output comes from inside: each line is bounded and
checked, and is only ever shown to the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from importlib.resources import files
from threading import Event, Lock, Timer
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from sandbox.async_process import AsyncProcess
from sandbox.errors import CommandError, GuestError
from sandbox.server.e2b.pings import pinged

if TYPE_CHECKING:
    from sandbox.protocols import Process
    from sandbox.server.reach import Reached
    from sandbox.server.server import Server

LINE_MOST = 64 * 1024
EVENTS_MOST = 50_000  # in one answer
PATIENCE = 60.0  # seconds in which the program must begin to watch, or answer


class Said(Struct, forbid_unknown_fields=True):
    """One line from the program."""

    name: Annotated[str, Meta(max_length=8192)] = ""
    type: Literal["CREATE", "WRITE", "REMOVE", "RENAME", "CHMOD"] | None = None
    mark: Annotated[int, Meta(ge=0)] | None = None


class Watcher:
    """One watching program. Thread-safe."""

    def __init__(self, reached: Reached, path: str, *, recursive: bool, entries: bool) -> None:
        """Returns when it is watching. `entries`: the client wants to know what is there after each event.

        Raises CommandError.
        """
        self.path, self.entries = path, entries
        text = (files("sandbox.server.e2b") / "drivers" / "watch.py").read_text(encoding="utf-8")
        command = ["python3", "-c", text, path, "1" if recursive else "0"]
        self.process: Process = reached.sandbox.spawn(command)
        self.lines = Lines()
        self._chunks = self.process.chunks()
        self._lock = Lock()
        self._asked = 0
        try:
            self._until(0)
        except BaseException:
            self.close()
            raise

    def happened(self) -> list[Said]:
        """All events so far. Raises CommandError when the program has ended, GuestError when it misbehaves."""
        with self._lock:
            self._asked += 1
            try:
                self.process.write(b"\n")
            except BrokenPipeError:
                pass  # reading will show why
            return self._until(self._asked)

    def _until(self, mark: int) -> list[Said]:
        """The events before that mark. A program that does not say it in time is killed. Raises GuestError then."""
        late = Event()

        def give_up() -> None:
            late.set()
            self.process.kill()

        timer = Timer(PATIENCE, give_up)
        timer.daemon = True
        timer.start()
        try:
            return self._before(mark)
        except CommandError:
            if late.is_set():
                raise GuestError("the watcher inside does not come to an end") from None
            raise
        finally:
            timer.cancel()

    def _before(self, mark: int) -> list[Said]:
        found: list[Said] = []
        while True:
            for said in self.lines.take():
                if said.mark == mark:
                    return found
                if said.type is not None:
                    found.append(said)
                if len(found) > EVENTS_MOST:
                    raise GuestError("the watcher inside does not come to an end")
            chunk = next(self._chunks, None)
            if chunk is None:
                raise CommandError("the watcher inside has ended; it needs python3 there", exit_code=1)
            if chunk.stream == "stdout":
                self.lines.add(chunk.data)

    def close(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.close()


class Lines:
    """Splits the program's output into lines. Raises GuestError for a line that our program would not print."""

    def __init__(self) -> None:
        self._held = bytearray()

    def add(self, data: bytes) -> None:
        self._held += data

    def take(self) -> Iterator[Said]:
        """The complete lines. Those that the caller does not take are kept."""
        while (end := self._held.find(b"\n")) >= 0:
            line = bytes(self._held[:end])
            del self._held[: end + 1]
            try:
                yield msgspec.json.decode(line, type=Said)
            except msgspec.MsgspecError:
                raise GuestError("the watcher inside said something that is no event") from None
        if len(self._held) > LINE_MOST:
            raise GuestError("the watcher inside sent a line that is too long")


async def events(server: Server, watcher: Watcher, ping: float, limit: float | None) -> AsyncIterator[Said | None]:
    """Events as they happen, and None whenever there was none for `ping` seconds. Ends the watcher at the end."""
    following = AsyncProcess(watcher.process, server.run)
    try:
        for said in watcher.lines.take():
            yield said
        async for chunk in pinged(following.chunks(), ping, limit):
            if chunk is None:
                yield None
            elif chunk.stream == "stdout":
                watcher.lines.add(chunk.data)
                for said in watcher.lines.take():
                    if said.type is not None:
                        yield said
        raise CommandError("the watcher inside has ended; it needs python3 there", exit_code=1)
    finally:
        await asyncio.shield(following.close())
