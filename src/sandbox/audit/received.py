"""Records of other machines, each verified line by line as it arrives, and kept as the same files.

    <chain>/audit.jsonl   its lines
    <chain>/head          as in any record: number and hash of the last line, and the file's length
    <chain>/problem       why a line was refused; what was kept before it is intact
    <chain>/next          the name under which the record is kept since it no longer had what was kept here

The files say how far we are. A line counts when it is whole, in its place and on disk, so a side that is killed at any
moment continues from there: the sender asks for the number, and sends the lines after it.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import contextmanager

from sandbox.audit import chain
from sandbox.audit.reading import Verification, verify
from sandbox.audit.record import CURRENT, HEAD, Head
from sandbox.errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PROBLEM, NEXT = "problem", "next"
_GENERATION = "r"  # between the name of a node, which is hexadecimal, and the number of its record's generation
_NAME = re.compile(r"[0-9a-z]{1,64}\Z")


class ReceivedRecords:
    """A directory of such records. Safe to use from many threads and processes."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        os.makedirs(directory, mode=0o700, exist_ok=True)

    def chains(self) -> list[str]:
        """The names of the records."""
        return sorted(one for one in os.listdir(self._directory) if _NAME.match(one))

    def directory(self, name: str) -> str:
        """The directory of a record. Raises InvalidArgument if `name` is not valid."""
        if not _NAME.match(name):
            raise InvalidArgument("{name!r} is not the name of a record", name=name)
        return os.path.join(self._directory, name)

    def number(self, name: str) -> int:
        """The number of the last line that is kept. Raises InvalidArgument, OSError."""
        with self._held(name) as (_, head):
            return head.number

    def problem(self, name: str) -> str:
        """Why a line was refused, or ""."""
        return self._noted(name, PROBLEM)

    def reached(self, name: str) -> tuple[int, str]:
        """The number and the hash of the last line that is kept. Raises InvalidArgument, OSError."""
        with self._held(name) as (_, head):
            return head.number, head.digest

    def next(self, name: str) -> str:
        """The name under which the record goes on, or "" while that is this one."""
        return self._noted(name, NEXT)

    def replace(self, name: str) -> str:
        """Goes on under another name, because the record no longer has what was kept, and notes that. Returns the name.

        Raises InvalidArgument, OSError.
        """
        with self._held(name) as (_, head):
            if already := self.next(name):
                return already
            first, number = generation(name)
            name_after = f"{first}{_GENERATION}{number + 1}"
            self.directory(name_after)  # is it a valid name?
            self._note(
                name,
                f"line {head.number}, which is kept, is no longer in the node's own record: that was rolled back or "
                f"replaced. What it has now is kept as {name_after}",
            )
            self._note(name, name_after, NEXT)
            return name_after

    def verified(self, name: str) -> Verification:
        """Walks the whole chain again."""
        return verify(self.directory(name))

    def take(self, name: str, lines: bytes) -> int:
        """Keeps the lines that follow and skips those kept already. Returns the new number, once it is on disk.

        Raises InvalidArgument at the first line that does not belong there; those before it are kept. Raises OSError.
        """
        with self._held(name) as (log, head):
            good: list[bytes] = []
            problem = ""
            for line in lines.splitlines(keepends=True):
                found = chain.opened(line.decode("ascii", "replace")) if line.endswith(b"\n") else None
                problem = _wrong(found, head)
                if problem:
                    break
                assert found is not None
                if found[1] > head.number:
                    head.number, head.digest = found[1], found[2]
                    good.append(line)
            if good:
                _append(log, b"".join(good))
                os.fsync(log)
                head.size += sum(map(len, good))
                self._write_head(name, head)
            if problem:
                self._note(name, problem)
                raise InvalidArgument("the record {name}: {problem}", name=name, problem=problem)
            return head.number

    @contextmanager
    def _held(self, name: str) -> Iterator[tuple[int, Head]]:
        """The record's file and head, which agree. Nobody else writes meanwhile."""
        place = self.directory(name)
        os.makedirs(place, mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(os.path.join(place, HEAD), flags, 0o600)
        log = -1
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            log = os.open(os.path.join(place, CURRENT), flags | os.O_APPEND, 0o600)
            head = Head.unpack(os.pread(lock, 256, 0)) or Head()
            if os.fstat(log).st_size != head.size:
                self._recover(name, log, head)
            yield log, head
        finally:
            if log >= 0:
                os.close(log)
            os.close(lock)

    def _recover(self, name: str, log: int, head: Head) -> None:
        """After a kill between the lines and the head, or within a line: keeps the whole lines that follow."""
        size = os.fstat(log).st_size
        if size < head.size:
            raise InvalidArgument("the record {name}: {problem}", name=name, problem="the kept file was cut short")
        for line in os.pread(log, size - head.size, head.size).splitlines(keepends=True):
            found = chain.opened(line.decode("ascii", "replace")) if line.endswith(b"\n") else None
            if _wrong(found, head) or found is None or found[1] <= head.number:
                break
            head.number, head.digest, head.size = found[1], found[2], head.size + len(line)
        os.ftruncate(log, head.size)
        self._write_head(name, head)

    def _write_head(self, name: str, head: Head) -> None:
        with open(os.path.join(self.directory(name), HEAD), "rb+", buffering=0) as file:
            file.write(head.pack())

    def _noted(self, name: str, file: str) -> str:
        try:
            with open(os.path.join(self.directory(name), file), encoding="utf-8") as noted:
                return noted.read(1000)
        except FileNotFoundError:
            return ""

    def _note(self, name: str, text: str, file: str = PROBLEM) -> None:
        with open(os.path.join(self.directory(name), file), "w", encoding="utf-8", opener=_private) as noted:
            noted.write(text)


def generation(name: str) -> tuple[str, int]:
    """The first name of a record, and how often it was given another one since."""
    first, mark, number = name.partition(_GENERATION)
    return (first, int(number)) if mark and number.isdecimal() else (name, 0)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _append(log: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(log, left) :]


def _wrong(found: tuple[str, int, str] | None, head: Head) -> str:
    """Why a line cannot come after `head`, or ""."""
    if found is None:
        return f"the line after {head.number} was altered"
    content, number, digest = found
    if number < head.number:
        return ""  # kept already
    if number == head.number:
        return "" if digest == head.digest else f"line {number} was altered since it was kept"
    if number > head.number + 1:
        return f"lines {head.number + 1} to {number - 1} are missing"
    return "" if chain.follows(content, digest, head.digest) else f"line {number} was altered"
