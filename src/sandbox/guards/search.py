"""Finds the existing paths to cover (blocked: unreadable) or freeze (protected: read-only), in one pass over the tree.

Every start pays for this pass, so it is fast in the ordinary case, a directory in which nothing matches: the names of a
directory are joined into one string, and a few substring searches rule them all out at once. Only if one of these finds
something is each name checked. Nothing is skipped: a directory that cannot be read is covered as a whole, because a
tenant of the same owner could make it readable.
"""

from __future__ import annotations

import os
import stat
from time import clock_gettime_ns

from sandbox.config.home import home
from sandbox.config.paths import is_beneath
from sandbox.config.patterns import Patterns, fold
from sandbox.guards.covers import Covering, Covers, Mask, drop_covered
from sandbox.guards.deep_walk import too_long, walk_deep
from sandbox.policy.protected import git_name, protected_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sandbox.config.model import Filesystem
    from sandbox.guards.blocked_files import BlockedFiles
    from sandbox.guards.linked_directories import LinkedDirectories
    from sandbox.guards.scan import Scanner

COARSE = 5  # CLOCK_REALTIME_COARSE, by which the kernel stamps files
IS_ROOT = os.geteuid() == 0
SOCKET = "a socket of the host"  # the rule's name: a socket leads to a program there


def search(
    filesystem: Filesystem,
    roots: list[str],
    own: Sequence[str] = (),
    *,
    secrets: Mapping[str, str] | None = None,
    blocked_before: BlockedFiles | None = None,
    hidden: Sequence[str] = (),
) -> Search:
    """Finds what must be covered or frozen under `roots`, which are real directories of the host that tenants will see.

    `own`: further directories of the sandbox's own, beside its home. `secrets`: files that no pattern blocks, each with
    the rule that does. `blocked_before`: the files that earlier runs blocked. What is blocked now is added to it; the
    caller saves it.
    `hidden`: directories that tenants will not see although a root holds them.
    """
    made = Search(filesystem, [os.path.normpath(root) for root in roots], Covers(), blocked_before, hidden)
    for root in made.roots:
        made.walk(root)
        made.freeze_root(root)
    made.follow_links()
    made.cover_links()
    made.cover_named()
    made.cover_secrets(secrets or {})
    made.cover_links()
    for place in (home(), *own):
        made.cover_own(os.path.realpath(place))
    drop_covered(made.found.masks)
    return made


def denied(filesystem: Filesystem, places: list[str], shown: list[str]) -> list[Mask]:
    """What `deny_read` names in `places`, which are not searched: the system, and programs under the home.

    `shown`: the project and other shown paths, which stay visible when a directory above them is denied.
    """
    if not filesystem.deny_read:
        return []
    made = Search(filesystem, places, Covers())
    made.allowed_back += shown
    made.cover_named()
    drop_covered(made.found.masks)
    return list(made.found.masks.values())


class Search(Covering):
    """The pass over the trees, and what it saw."""

    def __init__(
        self,
        filesystem: Filesystem,
        roots: list[str],
        found: Covers,
        blocked_before: BlockedFiles | None = None,
        hidden: Sequence[str] = (),
    ) -> None:
        self.hidden = frozenset(hidden)
        # A root inside another one is searched with it.
        walked = [root for root in roots if not any(self._walked_with(root, other) for other in roots)]
        super().__init__(filesystem, walked, found, blocked_before)
        self.blocked = Patterns(filesystem.blocked_patterns)
        self.allowed = Patterns(filesystem.allowed_patterns)
        self.protected = protected_in(filesystem)
        self.needles = tuple({*self.blocked.needles, *self.protected.needles, "/.git/"})
        # Most begin with a dot, and most directories have no such name: 8 of 70 ms on 100,000 files.
        self.undotted = tuple(needle for needle in self.needles if not needle.startswith("/."))
        self.known: Mapping[int, object] = blocked_before.inodes if blocked_before is not None else {}
        self.deep: list[tuple[str, int]] = []  # directories too deep for a path, and how long their root's path is
        self.links: list[str] = []  # symbolic links that were met, and not followed yet
        self.ways: LinkedDirectories | None = None  # through those that lead to directories
        self.noted: dict[str, int] = {}  # directories and their ctime; -1: may have changed since
        self.kept = True  # whether everything that was found could be remembered
        self.looker: Scanner | None = None  # what searches again

    def _walked_with(self, root: str, other: str) -> bool:
        if root == other or not is_beneath(root, other):
            return False
        return not any(is_beneath(root, one) and is_beneath(one, other) for one in self.hidden)

    def walk(self, root: str) -> None:
        if os.path.isfile(root):
            self.match(root, root.rpartition("/")[2], os.path.dirname(root))
            return
        self.walk_below(root, root)

    def freeze_root(self, root: str) -> None:
        """With `show_host`: freezes a tree that is in something protected (`.git/hooks`), even if it was asked for.
        Directories that contain the project do not count."""
        project = os.path.realpath(os.path.expanduser(self.filesystem.root))
        above = root
        while self.filesystem.show_host and not is_beneath(project, above):
            if self.protected.match(above[1:], True):
                self.found.frozen[root] = None
            above = os.path.dirname(above)

    def walk_below(self, start: str, root: str) -> None:
        """Searches everything below `start`, a directory in the tree `root`."""
        cut = len(root.rstrip("/")) + 1
        waiting = [start]
        while waiting:
            directory = waiting.pop()
            if too_long(directory):
                self.deep.append((directory, cut))
                self.look_deep(directory, cut)
                continue
            waiting += self.look(directory, cut)

    def look(self, directory: str, cut: int) -> list[str]:
        """Checks everything in one directory; returns the directories in it that are not covered."""
        names, below, met = self.names_in(directory)
        self.found.directories.append(directory)
        if not names:
            return below
        folded = fold(f"/{'/'.join(names)}/")
        if "/head/" in folded:
            self.found.heads.append(directory)
        for needle in self.needles if "/." in folded else self.undotted:
            if needle in folded:
                met = names
                break
        if met:
            # Only what is not covered is searched further.
            covered = self.match_all(directory, met, cut)
            below = [path for path in below if path not in covered]
        return [path for path in below if path not in self.hidden] if self.hidden else below

    def look_deep(self, start: str, cut: int) -> None:
        """Searches below `start`, where paths are too long to mount on. If a rule blocks anything, covers `start`."""
        try:
            for relative, entries in walk_deep(start):
                for name, inode, is_dir in entries:
                    if inode in self.known or any(inode == number for _, number in self.inodes):
                        return self.cover(start, True, "a blocked file deeper than paths can be long")
                    if not self.could_match(name):
                        continue
                    path = f"{start[cut:]}/{relative}/{name}" if relative else f"{start[cut:]}/{name}"
                    if self.pattern_for(path, is_dir) or self.by_another_way(f"{start[:cut]}{path}", is_dir):
                        return self.cover(start, True, "a blocked file deeper than paths can be long")
                    if self.protected.match(f"{start[1:cut]}{path}", is_dir):
                        self.found.frozen[start] = None
        except OSError:
            self.cover(start, True, "cannot be searched")

    def could_match(self, name: str) -> bool:
        """False for nearly every name, at little cost."""
        folded = fold(f"/{name}/")
        return any(needle in folded for needle in self.needles)

    def names_in(self, directory: str) -> tuple[list[str], list[str], list[str]]:
        """The names in a directory, the paths of the directories among them, and the names of what may have been
        blocked before. Covers sockets of the host."""
        names: list[str] = []
        below: list[str] = []
        met: list[str] = []
        try:
            # File times have the resolution of a clock tick: within the same tick a second change would not show.
            now, info = clock_gettime_ns(COARSE), os.stat(directory)
            self.noted[directory] = info.st_ctime_ns if info.st_ctime_ns < now else -1
            if info.st_uid != 0 and IS_ROOT and closed_to_root(info):
                raise PermissionError
            with os.scandir(directory) as listed:
                entries = list(listed)
            # One pass for each question, because for nearly every entry, a plain file, only the first two matter.
            names = [entry.name for entry in entries]
            if not self.known.keys().isdisjoint([entry.inode() for entry in entries]):
                met = [entry.name for entry in entries if entry.inode() in self.known]
            for entry in [entry for entry in entries if not entry.is_file(follow_symlinks=False)]:
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
                elif entry.is_symlink():
                    self.links.append(entry.path)
                    self.found.links.append(entry.path)
                elif is_socket(entry.path):
                    self.cover(entry.path, False, SOCKET)
        except FileNotFoundError:
            self.noted[directory] = -1  # it has gone
        except OSError:
            self.cover(directory, True, "cannot be searched")
        return names, below, met

    def changed(self) -> list[str]:
        """The directories that have changed since they were searched, or may have."""
        found = []
        for directory, before in self.noted.items():
            try:
                if before < 0 or os.stat(directory).st_ctime_ns != before:
                    found.append(directory)
            except OSError:
                found.append(directory)
        return found

    def match_all(self, directory: str, names: list[str], cut: int) -> set[str]:
        covered = set()
        for name in names:
            path = f"{directory.rstrip('/')}/{name}"
            if self.match(path, path[cut:], directory):
                covered.add(path)
        return covered

    def pattern_for(self, relative: str, is_dir: bool) -> str | None:
        """The pattern that blocks a path of a tree, or None."""
        pattern = self.blocked.match(relative, is_dir)
        if pattern is None or git_name(relative) or self.allowed.match(relative, is_dir):
            return None
        return pattern

    def by_another_way(self, path: str, is_dir: bool) -> str | None:
        """The pattern that blocks an absolute path because a link leads there (`linked_directories.py`), or None."""
        found = self.ways.pattern_for(path, is_dir) if self.ways is not None else None
        return found[0] if found is not None else None

    def follow_links(self) -> None:
        """Covers what a rule blocks by the path through a link."""
        if not self.links:
            return
        if self.ways is None:
            from sandbox.guards.linked_directories import LinkedDirectories

            self.ways = LinkedDirectories(self)
        self.ways.follow(self.links)

    def match(self, path: str, relative: str, directory: str) -> bool:
        """Covers or freezes one path when a pattern says so; True when it is covered."""
        try:
            info = os.lstat(path)
        except OSError:
            return False  # gone since
        is_dir = stat.S_ISDIR(info.st_mode)
        is_link = stat.S_ISLNK(info.st_mode)
        pattern = self.pattern_for(relative, is_dir or is_link)
        if pattern is not None:
            if is_link:
                self.cover_target(path, pattern)
            else:
                self.cover(path, is_dir, pattern, info)
            return not is_link
        if self.ways is not None and self.ways.cover(path, info):
            return not is_link
        if not is_dir and relative.rpartition("/")[2] == ".git":
            self.found.git_files.append(path)
        if info.st_ino in self.known and not is_link and self.was_blocked(path, info):
            return True
        frozen = self.protected.match(path[1:], is_dir or is_link)  # the tree itself may be `.claude`
        if is_link:
            if frozen is not None:
                self.freeze_target(path)
            return False
        if frozen is not None:
            self.found.frozen[path] = None
            if "/" in frozen.removeprefix("**/").rstrip("/"):
                self.pin(directory)  # `.git`, `.claude`
        elif not is_dir and relative.rpartition("/")[2] == ".git":
            self.found.frozen[path] = None  # of a linked work tree: it names the repository that git will trust
        return False

    def was_blocked(self, path: str, info: os.stat_result) -> bool:
        """Covers a file that was blocked at another path before. At its old path, today's rules decide."""
        entry = self.blocked_before.known(path, info) if self.blocked_before is not None else None
        if entry is None or entry.path == path or path in self.allowed_back:
            return False
        self.cover(path, stat.S_ISDIR(info.st_mode), f"{entry.rule} (blocked before, as {entry.path})", info)
        return True

    def cover_links(self) -> None:
        """A second pass, only when a blocked file has more hard links: covers those too."""
        if not self.inodes:
            return
        numbers = {inode for _, inode in self.inodes}
        for path, inode in _all_files(self.roots, self.found.masks, self.hidden):
            if inode in numbers:
                try:
                    info = os.lstat(path)
                except OSError:
                    continue  # gone since
                pattern = self.inodes.get((info.st_dev, info.st_ino))
                if pattern is not None and stat.S_ISREG(info.st_mode):
                    self.cover(path, False, f"{pattern} (by a hard link)")
        for start, cut in self.deep:
            self.look_deep(start, cut)
        self.inodes = {}


def _all_files(roots: list[str], covered: dict[str, Mask], hidden: frozenset[str]) -> Iterator[tuple[str, int]]:
    waiting = list(roots)
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.path in covered or entry.path in hidden:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        yield entry.path, entry.inode()
        except OSError:
            continue


def closed_to_root(info: os.stat_result) -> bool:
    """Whether root without capabilities cannot enter another user's directory. Root's tenants have no capabilities, nor
    has the guest that builds their walls: they cannot reach what is in it, nor cover it piece by piece."""
    wanted = 0o050 if info.st_gid == 0 else 0o005
    return info.st_mode & wanted != wanted


def is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
