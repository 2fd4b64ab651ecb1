"""The record as it grows, for everybody who follows it: one reader of the file, however many subscribers.

The record on disk is the source, not this process's feed: it has what every sandbox of this user did, also before the
server started, and each line's number is what a client resumes from.
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

_INTERVAL = 0.05  # seconds between looks at the file's size
_MOST = 2**20  # bytes that are read at a time

Entry = dict[str, Any]
Batch = list[Entry]


class Tail:
    """Follows the record of one directory. Used from the event loop, except for `history`."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.last = 0  # the number of the newest entry that subscribers have seen
        self.feed = Feed(CAPACITY)  # the newest ones, as the specification's feed wants them
        self._file: int | None = None
        self._rest = b""
        self._subscribers: set[Callable[[Batch], object]] = set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reads the end of what is there, then follows. To be called once, in the loop."""
        self._open()
        self.catch_up()
        self._task = asyncio.create_task(self._follow())

    def catch_up(self) -> None:
        """Reads what was written until now, so that an answer has it."""
        try:
            while batch := self._more():
                self._take(batch)
            if self._rotated():
                self._open()
                while batch := self._more():
                    self._take(batch)
        except OSError:
            pass  # the disk may come back; what is missed now is read then

    def subscribe(self, subscriber: Callable[[Batch], object]) -> Callable[[], None]:
        """Calls `subscriber` in the loop with each new batch. Returns what ends that."""
        self._subscribers.add(subscriber)
        return lambda: self._subscribers.discard(subscriber)

    def history(self, after: int, until: int) -> Iterator[Entry]:
        """The entries of the record after number `after` up to `until`, the oldest first. Any thread."""
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
        """Older files are named for their first line, so those that hold nothing after `after` need not be read."""
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
        if self.last and fresh[0]["seq"] > self.last + 1:  # a line was repaired or a file rotated under us
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
        """Whether the file that we read has another name now, and all of it has been read."""
        try:
            now = os.stat(os.path.join(self.directory, CURRENT))
        except FileNotFoundError:
            return False
        return self._file is None or now.st_ino != os.fstat(self._file).st_ino

    def _more(self) -> Batch:
        """The next whole lines; a line that is still being written waits."""
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
