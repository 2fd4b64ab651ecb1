"""Follows the record as it grows: one reader of the file for any number of subscribers.

The source is the record on disk, not this process's feed. The record has what every sandbox of this user did, also
before the server started, and clients resume from the number of a line.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from sandbox.audit import reading
from sandbox.audit.feed import CAPACITY, Feed
from sandbox.audit.record import CURRENT

_INTERVAL = 0.05  # seconds between reads
_MOST = 2**20  # bytes read at a time

Entry = dict[str, Any]
Batch = list[Entry]


class Tail:
    """Follows the record of one directory. Used from the event loop, except for `history`."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.last = 0  # the number of the newest entry that subscribers have seen
        self.feed = Feed(CAPACITY)  # the newest entries, for the specification's feed
        self._file: int | None = None
        self._rest = b""
        self._subscribers: set[Callable[[Batch], object]] = set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reads the current file, then follows it. Call once, in the event loop."""
        self._open()
        self.catch_up()
        self._task = asyncio.create_task(self._follow())

    def catch_up(self) -> None:
        """Reads everything written so far, so that an answer includes it."""
        try:
            while batch := self._more():
                self._take(batch)
            if self._rotated():
                self._open()
                while batch := self._more():
                    self._take(batch)
        except OSError:
            pass  # the disk may recover; what is missed now is read then

    def subscribe(self, subscriber: Callable[[Batch], object]) -> Callable[[], None]:
        """Calls `subscriber` in the event loop with each new batch. Returns a function that unsubscribes it."""
        self._subscribers.add(subscriber)
        return lambda: self._subscribers.discard(subscriber)

    def history(self, after: int, until: int) -> Iterator[Entry]:
        """The entries after number `after`, up to and including `until`, oldest first. May be called in any thread."""
        for name in self._files_from(after):
            with open(name, "rb") as file:
                for line in file:
                    entry = _parsed(line)
                    if entry is None or entry.get("seq", 0) <= after:
                        continue
                    if entry["seq"] > until:
                        return
                    yield entry

    def _files_from(self, after: int) -> list[str]:
        """The files to read. Older files are named for their first line, so those wholly before `after` are skipped."""
        names = reading.files(self.directory)
        firsts = [int(os.path.basename(one)[6:-6]) if os.path.basename(one) != CURRENT else None for one in names]
        start = 0
        for at, first in enumerate(firsts):
            if first is not None and first <= after + 1:
                start = at
        return names[start:]

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # -- the file

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL)
            self.catch_up()

    def _take(self, batch: Batch) -> None:
        fresh = [one for one in batch if one["seq"] > self.last]
        if not fresh:
            return
        if self.last and fresh[0]["seq"] > self.last + 1:  # a line was repaired, or the file was rotated meanwhile
            fresh = [*self.history(self.last, fresh[0]["seq"] - 1), *fresh]
        self.last = fresh[-1]["seq"]
        for entry in fresh:
            self.feed.publish(entry)
        for subscriber in list(self._subscribers):
            subscriber(fresh)

    def _open(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._rest = b""
        try:
            self._file = os.open(os.path.join(self.directory, CURRENT), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._file = None

    def _rotated(self) -> bool:
        """Whether the file we are reading is no longer the current one."""
        try:
            now = os.stat(os.path.join(self.directory, CURRENT))
        except FileNotFoundError:
            return False
        return self._file is None or now.st_ino != os.fstat(self._file).st_ino

    def _more(self) -> Batch:
        """The next complete lines. A line that is still being written is left for later."""
        if self._file is None:
            return []
        while True:
            data = os.read(self._file, _MOST)
            if not data:
                return []
            whole, newline, rest = (self._rest + data).rpartition(b"\n")
            self._rest = rest
            if newline:
                found = [entry for line in whole.split(b"\n") if (entry := _parsed(line)) is not None]
                if found:
                    return found


def _parsed(line: bytes) -> Entry | None:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("seq"), int) else None
