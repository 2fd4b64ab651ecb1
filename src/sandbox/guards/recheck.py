"""Checks, after the covers are mounted and before any tenant runs, that nothing blocked was missed.

Milliseconds pass between the search of a tree and the mounts. If somebody renames a directory in that time, its covers
find nothing to be mounted on, or the search missed it. Directories that have changed since they were searched are
searched again, and what is new is covered from outside.

While a program keeps changing directories, as a build does, there is always a directory that has changed. Then inotify
tells what kind of change it was. New files do not matter: `late_masks.py` covers what appears later. Only something
that *moves* could have been missed. If things do not stop moving, the sandbox does not start.
"""

from __future__ import annotations

from time import monotonic, sleep

from sandbox.errors import Message, WallError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sandbox.guards.search import Search
    from sandbox.inotify import Inotify

    Cover = Callable[[Iterable[str]], Iterable[tuple[str, str | None]]]

TICK = 0.005  # seconds: the resolution of file times
PATIENCE = 1.0  # seconds
UNSETTLED = Message(
    "directories that may contain blocked files keep being renamed while the sandbox starts, so "
    "some files might stay visible; try again when that has stopped"
)


def settle(search: Search, cover: Cover, missed: int) -> None:
    """Returns when everything blocked is covered. `missed`: how many covers found no file, or another one.

    `cover(paths)` covers what is not covered yet, and returns what `mount_in_namespace.cover` yields. Raises WallError.
    """
    changed = search.changed()
    if changed or missed:
        Settling(search, cover).run(changed, bool(missed))


class Settling:
    def __init__(self, search: Search, cover: Cover) -> None:
        self._search = search
        self._cover = cover

    def run(self, changed: list[str], missed: bool) -> None:
        before = dict(self._search.found.masks)
        for turn in range(3):
            # In the first turn, a directory may be listed only because its time is of the tick in which it was
            # searched. In later turns every change happened since the last covers were mounted, while a file may have
            # been on its way from one place to the next.
            moved = turn > 0 or any(self._search.noted.get(path, -1) >= 0 for path in changed)
            self._look_again(changed)
            if missed or moved or self._search.found.masks.keys() - before.keys():
                self._cover_all()
                before = dict(self._search.found.masks)
            changed = self._search.changed()
            if not changed:
                return
            sleep(TICK)
        from sandbox.inotify import Inotify

        watch = Inotify()
        try:
            self._watched(watch, changed)
        finally:
            watch.close()

    def _watched(self, watch: Inotify, changed: list[str]) -> None:
        from sandbox.inotify import DONT_FOLLOW, MOVED_FROM, MOVED_TO, ONLY_DIR

        deadline = monotonic() + PATIENCE
        watched: set[str] = set()
        while monotonic() < deadline:
            for path in changed:
                try:
                    watch.add(path, MOVED_FROM | MOVED_TO | ONLY_DIR | DONT_FOLLOW)
                    watched.add(path)
                except OSError:
                    self._forget(path)  # renamed: its parent has changed too
            list(_read_all(watch))
            # From here on, no watched directory moves unnoticed, and nothing else changes unnoticed.
            self._look_again([*changed, *watched])
            self._cover_all()
            changed = [path for path in self._search.changed() if path not in watched]
            if not changed and not list(_read_all(watch)):
                return
            watched = {path for path in watched if path in self._search.noted}
        raise WallError(UNSETTLED)

    def _look_again(self, directories: Iterable[str]) -> None:
        search = self._search
        for directory in directories:
            root = next((one for one in search.roots if f"{directory}/".startswith(f"{one.rstrip('/')}/")), None)
            if root is None or directory not in search.noted:
                continue
            del search.noted[directory]
            below = search.look(directory, len(root.rstrip("/")) + 1)
            if search.noted.get(directory, -1) < 0 and not below:
                self._forget(directory)
            for path in below:
                if path not in search.noted:
                    search.walk_below(path, root)
        search.follow_links()
        search.cover_links()
        search.cover_named()
        search.cover_links()
        if search.blocked_before is not None:
            search.blocked_before.save()

    def _forget(self, directory: str) -> None:
        """Forgets a directory that has gone; the search finds it again wherever it was moved to."""
        import os

        if not os.path.isdir(directory):
            noted = self._search.noted
            for path in [one for one in noted if one == directory or one.startswith(f"{directory}/")]:
                del noted[path]

    def _cover_all(self) -> None:
        for path, problem in self._cover(self._search.found.masks):
            if problem:
                raise not_hidden(path, problem)


def not_hidden(path: str, problem: object) -> WallError:
    """The error for a blocked file that would stay visible."""
    return WallError("{path!r} is blocked but could not be hidden: {problem}", path=path, problem=problem)


def _read_all(watch: Inotify) -> Iterator[object]:
    for _ in range(64):  # does not wait for the end of a flood: the rest is read next time
        events = watch.read()
        if not events:
            return
        yield from events
