"""Changes as text for people: a summary line each, and unified diffs. A tenant may have written any of it, so whatever
a terminal would act on is escaped."""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.vfs.changes import Change
    from sandbox.vfs.file_state import FileState
    from sandbox.vfs.workspace import Workspace

MOST_TEXT = 256 * 1024  # of anything larger only the size is shown
LETTERS = {"added": "A", "modified": "M", "deleted": "D", "mode": "m"}


def printable(text: str) -> str:
    """`text` with control characters, direction marks and surrogates escaped."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode() for one in text)


def summary(change: Change) -> str:
    """One line: what happened to which path, and what to look out for."""
    words = [LETTERS[change.kind], printable(change.path) + ("/" if _side(change).kind == "directory" else "")]
    before, after = change.before, change.after
    if after is not None and after.kind == "link":
        words.append(f"-> {printable(after.target or '')}")
    if before is not None and after is not None and before.mode != after.mode:
        words.append(f"mode {before.mode:o} -> {after.mode:o}")
    elif after is not None and after.kind == "file" and after.mode & 0o7111:
        words.append(f"mode {after.mode:o}")
    if change.source is not None:
        words.append(f"<- {printable(change.source)}")
    sizes = [side.size for side in (before, after) if side is not None and side.kind == "file"]
    if sizes and change.kind != "mode":
        words.append(f"({' -> '.join(map(str, sizes))} bytes)")
    marks = [mark for mark in (change.conflict, change.risk, change.impossible, *change.notes) if mark]
    return " ".join(words) + "".join(f"  [! {printable(mark)}]" for mark in marks)


def unified(workspace: Workspace, change: Change) -> Iterator[str]:
    """The lines of a unified diff, without line ends; no lines for what has no text."""
    sides = [side for side in (change.before, change.after) if side is not None and side.kind == "file"]
    if not sides or change.kind == "mode":
        return
    if any(side.size > MOST_TEXT for side in sides):
        yield f"(large file: {_sizes(change)})"
        return
    try:
        with workspace.open(change) as (ours, theirs):
            before, after = _text(ours), _text(theirs)
    except OSError as problem:
        yield f"(cannot be read: {problem.strerror})"
        return
    if before is None or after is None:
        yield f"(binary file: {_sizes(change)})"
        return
    name = printable(change.path)
    old = f"a/{name}" if change.before else "/dev/null"
    new = f"b/{name}" if change.after else "/dev/null"
    for line in difflib.unified_diff(_lines(before), _lines(after), old, new):
        yield _line(line)
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _lines(text: str) -> list[str]:
    """Splits at line feeds only: other characters that Python counts as line ends stay in the line, visibly."""
    *whole, rest = text.split("\n")
    return [line + "\n" for line in whole] + ([rest] if rest else [])


def _line(line: str) -> str:
    body = line[:-1] if line.endswith("\n") else line
    return "\t".join(printable(part) for part in body.split("\t"))


def _text(fd: int | None) -> str | None:
    """The file as text; None when it is not."""
    if fd is None:
        return ""
    data = b""
    while len(data) <= MOST_TEXT and (part := os.read(fd, MOST_TEXT)):
        data += part
    if b"\0" in data or len(data) > MOST_TEXT:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _side(change: Change) -> FileState:
    side = change.after or change.before
    assert side is not None
    return side


def _sizes(change: Change) -> str:
    sizes = [str(side.size) if side else "none" for side in (change.before, change.after)]
    return f"{sizes[0]} -> {sizes[1]} bytes"
