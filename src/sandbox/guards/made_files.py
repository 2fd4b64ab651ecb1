"""Finds new files that programs on the host act on (`.mcp.json`, `.envrc`) among what tenants wrote."""

from __future__ import annotations

import os

from sandbox.config.patterns import fold
from sandbox.guards.git_directories import beneath
from sandbox.guards.written_trees import attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sandbox.config.patterns import Patterns
    from sandbox.guards.git_marker import Baseline
    from sandbox.guards.written_trees import Tell

MOST = 1000


def noting_made(
    changed: Iterable[tuple[str, list[str]]],
    protected: Patterns,
    roots: Sequence[str],
    known: Sequence[Baseline],
    note: Callable[[str, str], object],
    tell: Tell,
) -> Iterator[tuple[str, list[str]]]:
    """Passes on directories with the names in each, and on the way calls `note(directory, path)` for what is new."""
    for directory, names in changed:
        yield directory, names
        folded = fold(f"/{'/'.join(names)}/")
        if any(needle in folded for needle in protected.needles):
            attempt(tell, directory, _note, directory, names, protected, roots, known, note)


def _note(
    directory: str,
    names: list[str],
    protected: Patterns,
    roots: Sequence[str],
    known: Sequence[Baseline],
    note: Callable[[str, str], object],
) -> None:
    top = next((root for root in roots if beneath(directory, [root])), directory)
    cut = len(top.rstrip("/")) + 1
    if "/.git/" in f"{directory}/":
        return  # checked separately
    if "/node_modules/" in f"{directory}/" or "/site-packages/" in f"{directory}/":
        return  # installed packages come with their authors' editor settings; nobody opens them as projects
    for name in names:
        path = f"{directory}/{name}"
        if protected.match(path[cut:], True):
            was_there = any(beneath(path, list(one.protected)) for one in known)
            if not was_there and not _is_empty(path):
                note(directory, path)


def _is_empty(path: str) -> bool:
    """Whether it is a directory that is known to be empty."""
    try:
        return os.path.isdir(path) and not os.listdir(path)
    except OSError:
        return False
