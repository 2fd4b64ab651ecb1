"""What a patch asks for, whichever way it was written."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Hunk:
    """Lines that are there, and what they become. `line` is where (counted from 1), when the patch says so."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    line: int | None = None
    anchors: tuple[str, ...] = ()  # lines that stand somewhere before it, one after the other


@dataclass(frozen=True)
class FilePatch:
    """What happens to one file. `kind` is "add", "update" or "delete"; `target` is its new path, when it moves."""

    kind: str
    path: str
    hunks: tuple[Hunk, ...] = ()
    target: str | None = None
    mode: int | None = None
    ends_with_newline: bool | None = field(default=None)  # None: as it was
    whole: bool = False  # a deletion whose hunks have all lines of the file
