"""Programs that tenants leave in a directory on the person's PATH: an activated virtual environment, a project's `bin`.

Tenants install programs there, and may do so. But if one has the name of a program further along PATH (`ls`, `git`),
it runs outside the walls when the person types that name as usual, and so does one that the person had there already.
So those are reported at the end.
"""

from __future__ import annotations

import os

from sandbox.config.paths import search_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 1000  # reported
FEW = 10  # changed ones in a directory; if there are more, the directory is reported


def on_path(trees: Sequence[str]) -> list[str]:
    """The directories of PATH that are in one of `trees`. Quick, because every start calls it."""
    tops = tuple(f"{tree.rstrip('/')}/" for tree in trees)
    return [one for one in dict.fromkeys(search_path()) if f"{one}/".startswith(tops)] if tops else []


class PathPrograms:
    """What was in `places`, directories of PATH, before tenants ran."""

    def __init__(self, places: Sequence[str]) -> None:
        self._before = {place: _programs(place) for place in places}
        self._path = list(dict.fromkeys(search_path()))

    def appeared(self) -> list[str]:
        """The new programs that a shell would run instead of one further along PATH, and those that were changed."""
        found: list[str] = []
        for place, before in self._before.items():
            later = [one for one in self._path[self._path.index(place) + 1 :] if one not in self._before]
            now = _programs(place)
            new = (name for name in sorted(now) if name not in before)
            found += (f"{place}/{name}" for name in new if any(os.path.lexists(f"{one}/{name}") for one in later))
            changed = sorted(name for name in now if before.get(name, now[name]) != now[name])
            found += (f"{place}/{name}" for name in changed) if len(changed) <= FEW else (place,)
        return found[:MOST]


def _programs(directory: str) -> dict[str, tuple[int, int]]:
    """The names in a directory, each with what identifies the file as it is now."""
    found = {}
    try:
        with os.scandir(directory) as entries:
            for one in entries:
                try:
                    info = one.stat(follow_symlinks=False)
                except OSError:
                    continue  # it is gone, and the others are not
                found[one.name] = (info.st_ino, info.st_ctime_ns)
    except OSError:
        pass  # nobody can run what is in there
    return found
