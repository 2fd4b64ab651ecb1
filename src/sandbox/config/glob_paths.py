"""Finds what a glob of the configuration means, in directories that tenants may have filled.

`glob.glob` follows links below `**`: two links to `.` have 2^40 paths, and no start would end.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Step = tuple[str, str, int]  # a directory, its real path, and which part of the pattern comes next

SIGNS = "*?["


def escaped(path: str) -> str:
    """A pattern that means this path alone. (`glob.escape` does the same, and takes milliseconds to load.)"""
    return "".join(f"[{sign}]" if sign in SIGNS else sign for sign in path)


def matches(pattern: str, enter: Callable[[str], bool] | None = None) -> Iterator[str]:
    """The existing paths, hidden ones too, that an absolute pattern means; `**` stands for any number of directories.

    A link below the literal part may be a match, but is not followed, unless `enter` agrees to its real path. Each
    directory is entered once for each part of the pattern, by its own name if it can be reached without a link.
    """
    parts = pattern.split("/")
    first = next((index for index, part in enumerate(parts) if any(sign in part for sign in SIGNS)), len(parts) - 1)
    base = "/".join(parts[:first]) or "/"
    search = _Search(parts, enter)
    search.waiting.append((base, os.path.realpath(base), first))
    return search.run()


def means(pattern: str, path: str) -> bool:
    """Whether an absolute pattern means this path, by its text, and with the pattern's literal part resolved."""
    parts = pattern.split("/")
    first = next((index for index, part in enumerate(parts) if any(sign in part for sign in SIGNS)), len(parts))
    base = os.path.realpath("/".join(parts[:first]) or "/")
    if path != base and not path.startswith(f"{base.rstrip('/')}/"):
        return False
    return _fits(parts[first:], [name for name in path[len(base) :].split("/") if name])


def _fits(parts: list[str], names: list[str]) -> bool:
    """Whether the parts of a pattern mean these names, one by one: as `matches` does."""
    from fnmatch import fnmatchcase

    reached = {0}  # how many parts the names so far may have used up
    for name in names:
        reached |= {at + 1 for at in reached if at < len(parts) and parts[at] == "**"}
        again = {at for at in reached if at < len(parts) and parts[at] == "**"}
        reached = again | {at + 1 for at in reached if at < len(parts) and fnmatchcase(name, parts[at])}
    while any(at < len(parts) and parts[at] == "**" and at + 1 not in reached for at in reached):
        reached |= {at + 1 for at in reached if at < len(parts) and parts[at] == "**"}
    return len(parts) in reached


class _Search:
    def __init__(self, parts: list[str], enter: Callable[[str], bool] | None) -> None:
        self._parts = parts
        self._enter = enter
        self._seen: set[tuple[str, int]] = set()
        self.waiting: list[Step] = []
        self._by_link: list[Step] = []

    def run(self) -> Iterator[str]:
        while self.waiting or self._by_link:
            path, real, index = (self.waiting or self._by_link).pop()
            if (real, index) in self._seen:
                continue
            self._seen.add((real, index))
            yield from self._below(path, real, index)

    def _below(self, path: str, real: str, index: int) -> Iterator[str]:
        part, last = self._parts[index], index == len(self._parts) - 1
        deep = part == "**"
        if deep and last:
            yield path
        elif deep:
            self.waiting.append((path, real, index + 1))
        for name in _names(path, part):
            child = f"{path.rstrip('/')}/{name}"
            if last:
                yield child
            if deep or not last:
                self._follow(child, f"{real.rstrip('/')}/{name}", index if deep else index + 1)

    def _follow(self, path: str, real: str, index: int) -> None:
        if not os.path.isdir(path):
            return
        if not os.path.islink(path):
            self.waiting.append((path, real, index))
        elif self._enter is not None and self._enter(real := os.path.realpath(path)):
            self._by_link.append((path, real, index))


def _names(path: str, part: str) -> list[str]:
    """The names in a directory that one part of a pattern means."""
    if not any(sign in part for sign in SIGNS):
        return [part] if os.path.lexists(f"{path}/{part}") else []
    from fnmatch import filter

    try:
        names = os.listdir(path)
    except OSError:
        return []
    return names if part == "**" else filter(names, part)
