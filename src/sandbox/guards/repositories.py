"""git repositories in the trees that a sandbox's tenants can write to, from its start to its end.

What is there at the start is trusted. While the sandbox runs, and when it has ended, the repositories are checked.
Whatever the host's git would run and was not trusted is undone (`repository_check.py`).

The check at the end visits only directories that changed since the start, by their ctime, which nobody can set. If the
file system does not use this machine's clock, every directory is visited.
"""

from __future__ import annotations

import os
import time

from sandbox.guards.git_directories import beneath
from sandbox.guards.git_marker import Baseline, Marker, markers_of, moved_path
from sandbox.guards.made_files import MOST, noting_made
from sandbox.guards.nofollow import O_PATH, path_of
from sandbox.guards.repository_check import RepositoryCheck, is_git_file
from sandbox.guards.written_trees import changed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sandbox.config.patterns import Patterns
    from sandbox.guards.written_trees import Tell

MARGIN = 100_000_000  # ns: file systems use a clock that may be a tick behind
# Names whose appearance is a reason to check a directory.
TELLING = frozenset(("HEAD", "config", "config.worktree", "commondir", "hooks", "objects", "refs", ".git"))


class Repositories:
    """The repositories of one sandbox. Calls `tell(path, saved)` for what was undone; `saved` is empty if undoing it
    failed."""

    def __init__(self, home: str, roots: Sequence[str], tell: Tell) -> None:
        """Undoes what killed sandboxes left, before anything is trusted. Raises OSError when `home` is read-only."""
        self.roots = [one for one in roots if not any(beneath(one, [other]) for other in roots if other != one)]
        self._tell = tell
        self.made: list[str] = []
        self.killed: list[
            str
        ] = []  # the roots in which an earlier sandbox was killed, and that nobody had checked since
        self.shared: list[tuple[str, int]] = []  # the roots in which another sandbox runs, and since when (ns)
        self._earlier: list[str] = []  # as `made`, from before we started
        self.settings: list[str] = []  # the trusted configurations, of which each setting is checked
        self._hooked: list[str] = []
        self._since = self._started = time.time_ns() - MARGIN
        self._clock = time.time() - time.monotonic()
        self._directories: list[str] = []
        self._there: frozenset[str] = frozenset()  # the same, at the end
        self._suspects: list[str] = []
        self._check = RepositoryCheck(self.roots, tell)
        self._markers: list[tuple[str, Marker]] = []
        self._places: list[tuple[int, str]] = []  # the roots, which somebody may rename, and their paths
        self.moved: dict[str, str] = {}  # after `finish`: the roots that have another path now
        os.makedirs(f"{home}/git", 0o700, exist_ok=True)
        for root in self.roots:
            above = root
            while (above := os.path.dirname(above)) != "/":
                if os.path.exists(path := markers_of(home, above)):
                    from sandbox.guards.killed_sandboxes import repair

                    repair(path, tell, self.made.append, above)
            marker = Marker(markers_of(home, root))
            self._markers.append((root, marker))
            if marker.shared is not None:
                self.shared.append((root, marker.shared.since))
            if (left := marker.left_at(root)) is not None:
                from sandbox.guards.killed_sandboxes import undo

                self.killed.append(root)
                undo(left, tell, self.made.append)
            place = os.open(root, O_PATH | os.O_CLOEXEC)
            self._places.append((place, path_of(place)))

    def trust(
        self,
        baseline: Callable[[str], Baseline],
        directories: list[str],
        heads: Sequence[str],
        hooked: Iterable[str] = (),
    ) -> None:
        """Trusts what is there now, except for what tenants of another running sandbox may have created.

        `hooked`: files that hooks of the person name and that do not exist."""
        # Nobody inside can write to what is only shown (the repository of a linked work tree): it is not checked again.
        self._directories = [one for one in directories if beneath(one, self.roots)]
        trusted: list[Baseline] = []
        for root, marker in self._markers:
            known = marker.shared
            if known is None:
                known = baseline(root)
                known.since, known.clock = self._since, self._clock
                marker.write(known)
            # If the sandbox that began earlier is killed, we are the one that checks what its tenants left.
            self._since, self._clock = min(self._since, known.since), max(self._clock, known.clock)
            trusted.append(known)
            self.settings += known.trusted.configs
        self._check = RepositoryCheck(self.roots, self._tell, trusted)
        self._suspects = [one for one in heads if beneath(one, self.roots) and not self._check.is_trusted(one)]
        self._hooked = list(hooked)

    # -- while the sandbox runs

    def appeared(self, heads: Iterable[str], git_files: Iterable[str]) -> None:
        """Checks repositories that have just appeared."""
        for path in git_files:
            self._check.git_file(path)
        for directory in heads:
            self._check.repository(directory)

    def look_again(self) -> None:
        """Checks everything, because some new names were missed."""
        self._check.everything(self._changed(), self._suspects, self._since)

    def look(self, path: str) -> bool:
        """Checks one path that has just appeared or been written. True when it belongs to a new repository."""
        name = os.path.basename(path)
        parent = os.path.dirname(path)
        self._check.name(path)
        if name == ".git" and is_git_file(path):
            self._check.git_file(path)
        elif os.path.islink(path):
            self._check.link(path)
        if name not in TELLING and not parent.endswith("/hooks"):
            return False
        repository = os.path.dirname(parent) if parent.endswith("/hooks") else parent
        return self._check.repository(repository)

    # -- the end

    def finish(self, protected: Patterns | None = None) -> None:
        """Undoes the rest and releases the trees. Call it when no tenant is left. Idempotent.

        Adds to `made` what is new and matches `protected`."""
        if self._check.known:
            if time.time() - time.monotonic() < self._clock - 0.05:
                self._since = self._started = 0  # somebody set the clock back
            self._follow_roots()
            self._check.last = True
            self._there = frozenset(self._directories)
            found = self._changed()
            if protected is not None:
                roots, known = self.roots, self._check.known
                found = noting_made(found, protected, roots, known, self._note_made, self._tell)
            self._check.everything(found, self._suspects, self._since)
            self.made += [one for one in self._hooked if os.path.lexists(one)]
        self.abandon()

    def abandon(self) -> None:
        """Releases the trees without a check, because nothing ran. Idempotent."""
        self._check, self._hooked = RepositoryCheck(self.roots, self._tell), []
        last = [marker.close() for _, marker in self._markers]
        if any(last):
            self.made += self._earlier  # by tenants of a sandbox that ended before us, perhaps without a word
        self._earlier = []
        for place, _ in self._places:
            os.close(place)
        self._markers, self._places = [], []

    def _follow_roots(self) -> None:
        """Looks where the trees are now, if somebody has renamed one, or a directory above it."""
        for root, (place, before) in zip(self.roots, self._places, strict=True):
            if (now := path_of(place)) != before and os.path.isdir(now):
                self.moved[root] = now
        known = self._check.known
        for old, new in self.moved.items():
            self.roots = [moved_path(old, new, one) for one in self.roots]
            self._directories = [moved_path(old, new, one) for one in self._directories]
            self._suspects = [moved_path(old, new, one) for one in self._suspects]
            self._hooked = [moved_path(old, new, one) for one in self._hooked]
            known = [one.moved(new) if one.root == old else one for one in known]
        if self.moved:
            self._check = RepositoryCheck(self.roots, self._tell, known)

    def _changed(self) -> Iterator[tuple[str, list[str]]]:
        return changed(self._directories, self.roots, self._since, self._tell)

    def _note_made(self, directory: str, path: str) -> None:
        made = self._earlier if self._is_older(directory) else self.made
        if len(made) < MOST:
            made.append(path)

    def _is_older(self, directory: str) -> bool:
        """Whether nothing was created in it since we started."""
        info = os.lstat(directory)
        return directory in self._there and info.st_ctime_ns < self._started
