"""Reading the record back: entries in order, and whether the chain holds."""

from __future__ import annotations

import os

from sandbox.audit import chain
from sandbox.audit.record import CURRENT, HEAD, Head
from sandbox.errors import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_LONGEST_LINE = 2**20  # real lines are much shorter


class Verification:
    """What `verify` found: the number of intact lines, and the first problem, if any, with its place."""

    __slots__ = ("count", "problem", "file", "line")

    def __init__(self, count: int, problem: str = "", file: str = "", line: int = 0) -> None:
        self.count = count
        self.problem = problem
        self.file = file
        self.line = line

    def __bool__(self) -> bool:
        return not self.problem

    def __repr__(self) -> str:
        return f"Verdict({self.count}, {self.problem!r}, {self.file!r}, {self.line})"


def files(directory: str) -> list[str]:
    """The record's files, oldest first."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    older = sorted(name for name in names if name.startswith("audit-") and name.endswith(".jsonl"))
    return [os.path.join(directory, name) for name in (*older, CURRENT) if name in names]


def lines(directory: str) -> Iterator[tuple[str, int, str]]:
    """Every line with its file and number there."""
    for name in files(directory):
        with open(name, encoding="ascii", errors="backslashreplace", newline="\n") as file:
            number = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                yield name, number, line


def entries(directory: str) -> Iterator[dict[str, Any]]:
    """Every entry that can be read, oldest first. `verify` reports the others."""
    for _, _, line in lines(directory):
        found = parsed(line)
        if found is not None:
            yield found


def parsed(line: str) -> dict[str, Any] | None:
    """One line as an entry, or None."""
    import json

    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def verify(directory: str) -> Verification:
    """Walks the chain. Finds the first line that was altered, removed, inserted or moved, and a cut-off end."""
    before, count = chain.FIRST, 0
    file, number = "", 0
    for file, number, line in lines(directory):
        found = chain.opened(line)
        if found is None:
            whole = line.endswith("\n")
            problem = Message("the line was altered") if whole else Message("the line is incomplete or was altered")
            return Verification(count, problem, file, number)
        content, seq, digest = found
        if seq != count + 1:
            problem = Message("line {line} is out of order", line=seq)
            if seq > count + 1:
                problem = Message("lines {first} to {last} are missing", first=count + 1, last=seq - 1)
            return Verification(count, problem, file, number)
        if not chain.follows(content, digest, before):
            return Verification(count, Message("the line was altered"), file, number)
        before, count = digest, seq
    head = stored_head(directory)
    if head is None:
        return (
            Verification(count, Message("the head file is missing"), os.path.join(directory, HEAD))
            if count
            else Verification(0)
        )
    if head.number > count:
        problem = Message("the end is missing: lines {first} to {last}", first=count + 1, last=head.number)
        return Verification(count, problem, file, number + 1)
    if (head.number, head.digest) != (count, before):
        return Verification(
            count, Message("the head file does not belong to this record"), os.path.join(directory, HEAD)
        )
    return Verification(count)


def stored_head(directory: str) -> Head | None:
    """What the head file says; None if there is none, or it is damaged."""
    try:
        with open(os.path.join(directory, HEAD), "rb") as file:
            return Head.unpack(file.read(256))
    except FileNotFoundError:
        return None
