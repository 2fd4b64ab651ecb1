"""Which of an overlay's changes are applied, and why the others are not."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from sandbox.vfs.provider import split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.vfs.change_groups import Groups
    from sandbox.vfs.changes import Change


class Choice:
    """What a caller asked for: `named` paths (None: everything), and whether the host's changes are overwritten."""

    def __init__(self, named: Sequence[str] | None, overwrite: bool) -> None:
        self._named = named
        self._overwrite = overwrite
        self.chosen: list[int] = []
        self.taken: set[int] = set()
        self.refused: dict[int, str] = {}
        """By the index of the change."""

    def covers(self, path: str) -> bool:
        """Whether the caller asked for that path."""
        return self._named is None or any(at_or_below(path, name) for name in self._named)

    def choose(self, changes: Sequence[Change], groups: Groups) -> None:
        """Fills `chosen` and `refused`. What is below something refused is in neither."""
        asked = [index for index, change in enumerate(changes) if self.covers(change.path)]
        members: defaultdict[int, list[int]] = defaultdict(list)
        for index in range(len(changes)):
            members[groups.of(index)].append(index)
        self.refused = {index: why for index in asked if (why := self._refusal(changes[index]))}
        self._keep_what_is_replaced_elsewhere(changes, asked, members)
        out = self._out(changes, asked)
        while True:
            before = len(out)
            for group in members.values():
                lost = next((index for index in group if index in out), None)
                if lost is None:
                    continue
                for index in group:
                    if index not in out and self.covers(changes[index].path):
                        self.refused[index] = f"belongs together with {changes[lost].path}, which is not applied"
            out = self._out(changes, asked)
            if len(out) == before:
                break
        self.chosen = [index for index in asked if index not in out]
        self.taken = set(self.chosen)

    def _keep_what_is_replaced_elsewhere(
        self, changes: Sequence[Change], asked: Sequence[int], members: dict[int, list[int]]
    ) -> None:
        """Refuses a deletion that may be half of a move if the other half was not asked for: the file would be lost."""
        wanted = set(asked)
        for group in members.values():
            other = next((one for one in group if one not in wanted and changes[one].kind != "deleted"), None)
            if other is None:
                continue
            for index in group:
                # A deletion that is named explicitly is intended, unless we know where the file went.
                known = changes[other].source == changes[index].path
                if index in wanted and changes[index].kind == "deleted" and (known or not self._names(changes[index])):
                    self.refused[index] = f"was perhaps moved to {changes[other].path}, which is not applied"

    def _names(self, change: Change) -> bool:
        return change.path in (self._named or ())

    def _refusal(self, change: Change) -> str | None:
        if change.discarded:
            return "it was discarded"
        if change.impossible:
            return change.impossible
        if change.risk and not self._names(change):
            return f"{change.risk}; to apply it all the same, name this very path after `sandbox apply`"
        if change.conflict and not self._overwrite:
            return change.conflict
        return None

    def _out(self, changes: Sequence[Change], asked: Sequence[int]) -> set[int]:
        """Everything at or below something refused: its path is occupied, or its directory is missing."""
        barred = {changes[index].path: True for index in self.refused}
        if not barred:
            return set()
        return {index for index in asked if _is_barred(changes[index].path, barred)}


def _is_barred(path: str, barred: dict[str, bool]) -> bool:
    """Whether the path, or a directory above it, is barred. Caches results in `barred`, because a tree may be deep."""
    asked = []
    place = path
    while place and place not in barred:
        asked.append(place)
        place = split("/" + place)[0][1:]
    answer = barred.get(place, False)
    for one in asked:
        barred[one] = answer
    return answer


def at_or_below(path: str, place: str) -> bool:
    return not place or path == place or path.startswith(place + "/")
