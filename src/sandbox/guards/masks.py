"""Which existing paths the walls cover (blocked: unreadable) or freeze (protected: read-only). One pass over the tree.

The pass is on the way to every start, so it is built for the ordinary case, a directory in which nothing matches: the
names of a directory are joined into one string, and a few substring searches say no to all of them at once. Only where
they say "maybe" is a name looked at by itself. Nothing is skipped; a directory that cannot be read is covered whole,
because a tenant of the same owner could make it readable.
"""

from __future__ import annotations

import os
import stat
from time import clock_gettime_ns

from sandbox.config.home import home
from sandbox.config.paths import is_beneath
from sandbox.config.patterns import Patterns, fold
from sandbox.guards.deep import listings, too_long
from sandbox.policy.files import git_name, protected_patterns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sandbox.config.model import Filesystem
    from sandbox.guards.remembered import Remembered
    from sandbox.guards.scan import Scanner

COARSE = 5  # CLOCK_REALTIME_COARSE, by which the kernel stamps files
SOCKET = "a socket of the host"  # the rule: it leads to a program there


class Mask:
    """A path to be covered by something unreadable."""

    __slots__ = ("path", "is_dir", "rule", "inode")

    def __init__(self, path: str, is_dir: bool, rule: str) -> None:
        self.path = path
        self.is_dir = is_dir
        self.rule = rule
        self.inode = 0  # of what was judged, where that matters

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mask) and (self.path, self.is_dir) == (other.path, other.is_dir)

    def __repr__(self) -> str:
        return f"Mask({self.path!r}, is_dir={self.is_dir}, rule={self.rule!r})"


class Covers:
    """What `find` found. `pinned`: directories that must stay where they are, since what is in them is frozen.

    For git: `heads`, directories that may be a repository's own; `git_files`, which name one; and every directory.
    """

    __slots__ = ("masks", "frozen", "pinned", "heads", "git_files", "directories")

    def __init__(self) -> None:
        self.masks: dict[str, Mask] = {}
        self.frozen: dict[str, None] = {}
        self.pinned: dict[str, None] = {}
        self.heads: list[str] = []
        self.git_files: list[str] = []
        self.directories: list[str] = []


def masks(filesystem: Filesystem, roots: list[str]) -> list[Mask]:
    """The existing paths under `roots` to be covered."""
    return list(find(filesystem, roots).masks.values())


def protected(filesystem: Filesystem, roots: list[str]) -> list[str]:
    """The existing paths under `roots` to be made read-only."""
    return list(find(filesystem, roots).frozen)


def denied(filesystem: Filesystem, places: list[str], shown: list[str]) -> list[Mask]:
    """What `deny_read` names in `places`, which nobody walks through: the system, and programs under the home.

    `shown`: the project and its like, which stay although a directory above them is denied.
    """
    if not filesystem.deny_read:
        return []
    made = Search(filesystem, places, Covers())
    made.allowed_back += shown
    made.cover_named()
    _drop_covered(made.found.masks)
    return list(made.found.masks.values())


def find(filesystem: Filesystem, roots: list[str], own: Sequence[str] = ()) -> Covers:
    """What must be covered or frozen under `roots`, for those who only want to know."""
    return search(filesystem, roots, own).found


def search(
    filesystem: Filesystem,
    roots: list[str],
    own: Sequence[str] = (),
    *,
    secrets: Mapping[str, str] | None = None,
    remembered: Remembered | None = None,
    hidden: Sequence[str] = (),
) -> Search:
    """What must be covered or frozen under `roots`, which are real directories of the host that tenants will see.

    `own`: further places of ours, beside the sandbox's home. `secrets`: files that are blocked by no pattern, each with
    the rule that says so. `remembered`: what was blocked before, and learns of what is now; saving is the caller's.
    `hidden`: directories that tenants will not see although a root holds them.
    """
    made = Search(filesystem, [os.path.normpath(root) for root in roots], Covers(), remembered, hidden)
    for root in made.roots:
        made.walk(root)
    made.cover_links()
    made.cover_named()
    made.cover_secrets(secrets or {})
    made.cover_links()
    for place in (home(), *own):
        made.cover_own(os.path.realpath(place))
    _drop_covered(made.found.masks)
    return made


class Search:
    def __init__(
        self,
        filesystem: Filesystem,
        roots: list[str],
        found: Covers,
        remembered: Remembered | None = None,
        hidden: Sequence[str] = (),
    ) -> None:
        self.hidden = frozenset(hidden)
        # A root inside another is walked with it.
        self.roots = [root for root in roots if not any(self._walked_with(root, other) for other in roots)]
        self.filesystem = filesystem
        self.blocked = Patterns(filesystem.blocked_patterns)
        self.allowed = Patterns(filesystem.allowed_patterns)
        self.protected = protected_patterns()
        self.needles = tuple({*self.blocked.needles, *self.protected.needles, "/.git/"})
        self.found = found
        self.remembered = remembered
        self.known: Mapping[int, object] = remembered.inodes if remembered is not None else {}
        self.inodes: dict[tuple[int, int], str] = {}  # blocked files that have further names, which were not looked for
        self.deep: list[tuple[str, int]] = []  # directories whose content no path leads to, and where roots end in them
        self.noted: dict[str, int] = {}  # directories, and when they were last changed; -1: perhaps since
        self.allowed_back = [self._absolute(path) for path in filesystem.allow_read]
        self.base = roots[0] if roots else "/"
        self.kept = True  # whether all that was found is remembered
        self.looker: Scanner | None = None  # who looks again

    def _walked_with(self, root: str, other: str) -> bool:
        if root == other or not is_beneath(root, other):
            return False
        return not any(is_beneath(root, one) and is_beneath(one, other) for one in self.hidden)

    def walk(self, root: str) -> None:
        if os.path.isfile(root):
            self.match(root, root.rpartition("/")[2], os.path.dirname(root))
            return
        self.walk_below(root, root)

    def walk_below(self, start: str, root: str) -> None:
        """Looks at everything beneath `start`, a directory of the tree `root`."""
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
        """Judges everything in one directory; returns the directories in it that are not covered."""
        names, below, met = self.names_in(directory)
        self.found.directories.append(directory)
        if not names:
            return below
        folded = fold(f"/{'/'.join(names)}/")
        if "/head/" in folded:
            self.found.heads.append(directory)
        for needle in self.needles:
            if needle in folded:
                met = names
                break
        if met:
            # Only what is not covered is walked further.
            covered = self.match_all(directory, met, cut)
            below = [path for path in below if path not in covered]
        return [path for path in below if path not in self.hidden] if self.hidden else below

    def look_deep(self, start: str, cut: int) -> None:
        """What no path leads to cannot be covered: all from `start` on is, when a rule is about some of it."""
        try:
            for relative, entries in listings(start):
                for name, inode, is_dir in entries:
                    if inode in self.known or any(inode == number for _, number in self.inodes):
                        return self.cover(start, True, "a blocked file deeper than paths can be long")
                    if not self.could_match(name):
                        continue
                    path = f"{start[cut:]}/{relative}/{name}" if relative else f"{start[cut:]}/{name}"
                    if self.pattern_for(path, is_dir):
                        return self.cover(start, True, "a blocked file deeper than paths can be long")
                    if self.protected.match(path, is_dir):
                        self.found.frozen[start] = None
        except OSError:
            self.cover(start, True, "cannot be searched")

    def could_match(self, name: str) -> bool:
        """A fast no for nearly every name there is."""
        folded = fold(f"/{name}/")
        return any(needle in folded for needle in self.needles)

    def names_in(self, directory: str) -> tuple[list[str], list[str], list[str]]:
        """The names in a directory, the paths of the directories among them, and the names of what was perhaps
        blocked before. Host's sockets are covered here."""
        names: list[str] = []
        below: list[str] = []
        met: list[str] = []
        known = self.known
        try:
            # Stamps are given by the clock's ticks: one of this very tick may hide a second change.
            now, changed = clock_gettime_ns(COARSE), os.stat(directory).st_ctime_ns
            self.noted[directory] = changed if changed < now else -1
            with os.scandir(directory) as entries:
                for entry in entries:
                    names.append(entry.name)
                    if entry.inode() in known:
                        met.append(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False) and is_socket(entry.path):
                        self.cover(entry.path, False, SOCKET)
        except FileNotFoundError:
            self.noted[directory] = -1  # gone since, or elsewhere
        except OSError:
            self.cover(directory, True, "cannot be searched")
        return names, below, met

    def changed(self) -> list[str]:
        """The directories that are no longer as they were when they were looked at, or may not be."""
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
        """The pattern that blocks a path of a tree, if one does."""
        pattern = self.blocked.match(relative, is_dir)
        if pattern is None or git_name(relative) or self.allowed.match(relative, is_dir):
            return None
        return pattern

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
        if not is_dir and relative.rpartition("/")[2] == ".git":
            self.found.git_files.append(path)
        if info.st_ino in self.known and not is_link and self.was_blocked(path, info):
            return True
        frozen = self.protected.match(relative, is_dir or is_link)
        if is_link:
            if frozen is not None:
                self.freeze_target(path)
            return False
        if frozen is not None:
            self.found.frozen[path] = None
            if "/" in frozen.removeprefix("**/").rstrip("/"):
                self.pin(directory)  # `.git`, `.claude`
        elif not is_dir and relative.rpartition("/")[2] == ".git":
            self.found.frozen[path] = None  # a worktree's: it names the repository that git will trust
        return False

    def was_blocked(self, path: str, info: os.stat_result) -> bool:
        """Covers what was blocked somewhere else before. Where it was, the rules of today decide."""
        entry = self.remembered.known(path, info) if self.remembered is not None else None
        if entry is None or entry.path == path or path in self.allowed_back:
            return False
        self.cover(path, stat.S_ISDIR(info.st_mode), f"{entry.rule} (blocked before, as {entry.path})", info)
        return True

    def freeze_target(self, link: str) -> None:
        """A protected name that is a link: the host runs what it leads to. The link itself no mount can hold."""
        target = os.path.realpath(link)
        if self.visible(target) and os.path.exists(target) and not any(is_beneath(root, target) for root in self.roots):
            self.found.frozen[target] = None
            self.pin(os.path.dirname(target))

    def cover(
        self, path: str, is_dir: bool, rule: str, info: os.stat_result | None = None, named: str | None = None
    ) -> None:
        """`info`, of what a rule is about: it is remembered. `named`: the path by which the rule knows it."""
        mask = self.found.masks.setdefault(path, Mask(path, is_dir, rule))
        if info is None:
            return
        mask.inode = info.st_ino
        fresh = self.remembered is None or self.remembered.add(path, info, rule, named)
        if fresh and not is_dir and info.st_nlink > 1:
            self.inodes[info.st_dev, info.st_ino] = rule

    def cover_target(self, link: str, pattern: str) -> None:
        """A blocked name that is a link: what it leads to is the secret, whatever that is called."""
        target = os.path.realpath(link)
        if self.visible(target) and target not in self.roots and os.path.exists(target):
            info = os.stat(target)
            # By the link's path: a tenant can remove the link, and where it led must not be free by that.
            self.cover(target, stat.S_ISDIR(info.st_mode), f"{pattern} (by the link {link})", info, link)

    def visible(self, path: str) -> bool:
        return any(is_beneath(path, root) for root in self.roots)

    def cover_links(self) -> None:
        """A second pass, only when a blocked file has further names: those are covered too."""
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

    def cover_named(self) -> None:
        """`deny_read` and `deny_write`."""
        for path in self.filesystem.deny_read:
            for asked, match in self.expanded(path):
                self.cover_around(match, [one for one in self.allowed_back if is_beneath(one, match)], asked)
        for path in self.filesystem.deny_write:
            for _, match in self.expanded(path):
                self.found.frozen[match] = None
                self.pin(os.path.dirname(match))

    def cover_secrets(self, secrets: Mapping[str, str]) -> None:
        """Files that hold what the gate puts in outside the walls."""
        for path, rule in secrets.items():
            real = os.path.realpath(os.path.expanduser(path))
            if self.visible(real) and os.path.isfile(real):
                self.cover(real, False, rule, os.stat(real), f"{real} ")  # wherever it is: no rule is about its path
                self.pin(os.path.dirname(real))  # the host reads it again by its path

    def cover_own(self, place: str) -> None:
        """Our own things: config, record and registry are nobody's inside, nor replaced by somebody's."""
        if self.visible(place) and os.path.isdir(place):
            self.cover(place, True, "the sandbox's own")
            self.pin(os.path.dirname(place))

    def pin(self, directory: str) -> None:
        """Keeps a directory and all above it in place: else one is renamed, and another made under its name."""
        while directory not in self.roots and self.visible(directory):
            self.found.pinned[directory] = None
            directory = os.path.dirname(directory)

    def cover_around(self, path: str, kept: list[str], asked: str) -> None:
        """Covers `path` but for what `allow_read` gives back: then what lies beside the way there, piece by piece."""
        if path in kept:
            return
        if not kept:
            info = os.lstat(path)
            self.cover(path, stat.S_ISDIR(info.st_mode), "deny_read", info, asked)
            return
        for entry in os.listdir(path):
            below = f"{path}/{entry}"
            if not os.path.islink(below):
                self.cover_around(below, [one for one in kept if is_beneath(one, below)], f"{asked}/{entry}")

    def expanded(self, path: str) -> Iterator[tuple[str, str]]:
        """The existing visible paths that an entry of `deny_read` or `deny_write` means, each as it is called there and
        as it is; globs allowed."""
        absolute = self._absolute(path)
        if any(sign in path for sign in "*?["):
            import glob

            candidates = glob.glob(absolute, recursive=True, include_hidden=True)
        else:
            candidates = [absolute]
        for candidate in candidates:
            real = os.path.realpath(candidate)
            if self.visible(real) and os.path.exists(real):
                yield candidate, real

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.filesystem.root, os.path.expanduser(path)))


def _drop_covered(masks: dict[str, Mask]) -> None:
    """A cover beneath another is not needed, nor can it be put there: the outer one lets nobody through."""
    outer = "/ none"
    for path in sorted(masks, key=lambda one: one.split("/")):
        if is_beneath(path, outer):
            del masks[path]
        elif masks[path].is_dir:
            outer = path


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


def is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def inside_one(path: str, masks: dict[str, Mask]) -> bool:
    """Whether a directory above `path` is covered."""
    while len(path) > 1:
        path = os.path.dirname(path)
        if path in masks:
            return True
    return False
