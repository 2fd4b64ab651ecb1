"""Files of a project that its settings name: hooks of agents, MCP servers, tasks of editors.

The settings cannot be written from inside, and the person trusts them. What they name is the project's own code, which
tenants change as they work, so it is not frozen. What was changed is reported at the end, because a program on the host
may run it without being asked.
"""

from __future__ import annotations

import os
import stat

from sandbox.guards.git_directories import content
from sandbox.guards.git_examination import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    State = tuple[int, int] | None

SETTINGS = (".json", ".jsonc", ".toml", ".yml", ".yaml", ".code-workspace")  # not prose, which names files to read
LARGEST = 1 << 16  # bytes that are read of each
MOST_FILES, MOST_NAMES = 100, 2000
DEEP = 3  # directories above a settings file that its names may begin at


class NamedPrograms:
    """What the settings in `protected` (files and directories that tenants cannot write) named before tenants ran."""

    def __init__(self, protected: Sequence[str], roots: Sequence[str]) -> None:
        self._before: dict[str, State] = {}
        tops = tuple(f"{root.rstrip('/')}/" for root in roots)
        for number, path in enumerate(_settings(protected)):
            if number == MOST_FILES:
                return
            for named in _named(path):
                if len(self._before) == MOST_NAMES:
                    return
                if named.startswith(tops) and named not in self._before:
                    self._before[named] = _state(named)

    def changed(self) -> list[str]:
        """Those that were made or changed since."""
        now = {path: _state(path) for path in self._before}
        return sorted(path for path, before in self._before.items() if now[path] is not None and now[path] != before)


def _settings(protected: Iterable[str]) -> Iterator[str]:
    for path in protected:
        if path.endswith(SETTINGS):
            yield path
            continue
        try:
            with os.scandir(path) as entries:
                yield from sorted(one.path for one in entries if one.name.endswith(SETTINGS))
        except OSError:
            continue  # another kind of file


def _named(path: str) -> Iterator[str]:
    """Where the words of a settings file lead, if they are paths: from its directory, or from one above it."""
    text = (content(path, LARGEST) or b"").decode("utf-8", "replace").replace("\\", " ")
    above = [os.path.dirname(path)]
    while len(above) < DEEP:
        above.append(os.path.dirname(above[-1]))
    for word in dict.fromkeys(words(text)):
        if "." in word or "/" in word:
            yield from (os.path.normpath(f"{place}/{word}") for place in above)


def _state(path: str) -> State:
    """What identifies a file as it is now; None if there is none."""
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None
    return (info.st_ino, info.st_ctime_ns) if stat.S_ISREG(info.st_mode) else None
