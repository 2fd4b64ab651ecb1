"""Which paths of an overlay's lower side are hidden, and the marks that keep this in the upper side.

A hidden path has no lower side, and neither has anything below it. Each one is kept in the upper tree as an empty file
`.wh.<name>` next to it, as in container layers, so that an upper side that outlives the process can be used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.vfs.provider import info_or_none, join, split

if TYPE_CHECKING:
    from sandbox.vfs.provider import Provider

MARK = ".wh."


class Whiteouts:
    """The hidden paths of one overlay. To change them, hold the overlay's lock."""

    def __init__(self, upper: Provider) -> None:
        self._upper = upper
        self._paths: set[str] = set()
        self._find("/")

    def __contains__(self, path: str) -> bool:
        return path in self._paths

    def cover(self, path: str) -> bool:
        """Whether `path`, or a directory above it, is hidden."""
        if self._paths:
            while path != "/":
                if path in self._paths:
                    return True
                path = split(path)[0]
        return False

    def add(self, path: str) -> None:
        """Hides `path`. Its parent must have an upper side."""
        if path not in self._paths:
            self._upper.create(mark_of(path), 0o600).close()
            self._paths.add(path)

    def drop_below(self, path: str) -> None:
        """Forgets what a tree hid, before the tree is moved: the whiteout that it leaves behind hides all of it."""
        for hidden in [one for one in self._paths if one.startswith(path + "/")]:
            self._paths.discard(hidden)
            if info_or_none(self._upper, mark_of(hidden)) is not None:
                self._upper.remove(mark_of(hidden))

    def _find(self, path: str) -> None:
        for entry in self._upper.readdir(path):
            if entry.name.startswith(MARK):
                self._paths.add(join(path, entry.name[len(MARK) :]))
            elif (entry.info or self._upper.stat(join(path, entry.name))).is_dir:
                self._find(join(path, entry.name))


def mark_of(path: str) -> str:
    """The file in the upper tree that marks `path` as hidden."""
    parent, name = split(path)
    return join(parent, MARK + name)


def is_mark(path: str) -> bool:
    """Whether a path has a mark's name. Tenants can neither see nor create such files."""
    return split(path)[1].startswith(MARK)
