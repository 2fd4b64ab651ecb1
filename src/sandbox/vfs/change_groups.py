"""Which changes belong together, so that either all of them are applied or none.

overlayfs does not record what was renamed to what, only that a file came from some host file. So two changes that may
be the ends of one move count as one: files with the same bytes, or with the same name. If neither helps, every file of
unknown origin is grouped with every file that disappeared. Groups matter only when something in them is refused. Then
a group that is too large does no harm: no file is lost.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING

from sandbox.vfs.file_state import UNSEEN, FileState, below, open_regular
from sandbox.vfs.provider import split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandbox.vfs.changes import Change, LayerChanges


class Groups:
    """Disjoint sets of indices of changes (union-find)."""

    def __init__(self, size: int) -> None:
        self._above = list(range(size))

    def of(self, one: int) -> int:
        while self._above[one] != one:
            self._above[one] = self._above[self._above[one]]
            one = self._above[one]
        return one

    def join(self, one: int, other: int) -> None:
        self._above[self.of(one)] = self.of(other)


def group_changes(layer: LayerChanges, upper: int, project: int) -> Groups:
    """The groups of `layer.changes`, by index; sets the `source` of changes whose source is known."""
    found = layer.changes
    groups = Groups(len(found))
    by_path: dict[str, int] = {}
    for index, change in enumerate(found):
        if change.path in by_path:  # one thing replaced another at the same path
            groups.join(index, by_path[change.path])
        by_path[change.path] = index
    for names in layer.links.values():
        changed = [by_path[name] for name in names if name in by_path]
        for index in changed[1:]:
            groups.join(index, changed[0])
    gone = list(_gone(found, project))
    if gone:
        _pair(found, gone, groups, upper, project)
    return groups


def _gone(found: list[Change], project: int) -> Iterator[tuple[int, str, FileState]]:
    """The host's files that would be removed or replaced, each with the change that does it."""
    for index, change in enumerate(found):
        before = change.before
        if before is None:
            continue
        if before.kind == "directory" and change.kind == "deleted":
            for place, held in below(project, "/" + change.path):
                if held.kind == "file" or held.kind in UNSEEN:
                    yield index, place[1:], held
        elif before.kind == "file" and change.kind in ("deleted", "modified"):
            yield index, change.path, before


def _pair(
    found: list[Change], gone: list[tuple[int, str, FileState]], groups: Groups, upper: int, project: int
) -> None:
    new = [index for index, change in enumerate(found) if change.kind in ("added", "modified") and _is_file(change)]
    sizes: defaultdict[int, list[int]] = defaultdict(list)
    names: defaultdict[str, list[int]] = defaultdict(list)
    digests: dict[tuple[int, str], bytes | None] = {}
    for index in new:
        after = found[index].after
        assert after is not None
        sizes[after.size].append(index)
        names[split("/" + found[index].path)[1]].append(index)
    explained: set[int] = set()
    unpaired: list[int] = []
    for cause, path, held in gone:
        paired = False
        for index in sizes[held.size] if held.size else ():
            change = found[index]
            if change.path != path and _same(change, path, held, upper, project, digests):
                groups.join(index, cause)
                explained.add(index)
                change.source = change.source or path
                paired = True
        if not paired and found[cause].kind == "deleted":
            unpaired.append(cause)
            _join_all(groups, cause, names[split("/" + path)[1]])
    orphans = [
        index for index in new if found[index].from_host and index not in explained and _unexplained(found[index])
    ]
    orphans += [index for index, change in enumerate(found) if change.impossible and change.from_host]
    if orphans and unpaired:
        _join_all(groups, orphans[0], [*orphans, *unpaired])


def _join_all(groups: Groups, one: int, others: Iterable[int]) -> None:
    for other in others:
        groups.join(one, other)


def _is_file(change: Change) -> bool:
    return change.after is not None and change.after.kind == "file"


def _unexplained(change: Change) -> bool:
    """Whether a file's origin is unknown. One that was only written to came from the file at its own path."""
    return change.kind == "added" or change.conflict is not None


def _same(
    change: Change, path: str, held: FileState, upper: int, project: int, digests: dict[tuple[int, str], bytes | None]
) -> bool:
    assert change.after is not None
    if change.after.modified_ns == held.modified_ns:  # renames keep it, and so do the copies that mv makes
        return True
    ours = _digest(project, path, digests)
    return ours is not None and ours == _digest(upper, change.path, digests)


def _digest(root: int, path: str, known: dict[tuple[int, str], bytes | None]) -> bytes | None:
    if (root, path) not in known:
        try:
            fd = open_regular(root, "/" + path)
            with open(fd, "rb") as file:
                known[root, path] = hashlib.file_digest(file, "sha256").digest()
        except OSError:
            known[root, path] = None
    return known[root, path]
