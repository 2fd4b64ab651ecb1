"""Which existing paths the walls cover (blocked: unreadable) or freeze (protected: read-only). One pass over the tree.

The pass is on the way to every start, so it is built for the ordinary case, a directory in which nothing matches: the
names of a directory are joined into one string, and a few substring searches say no to all of them at once. Only where
they say "maybe" is a name looked at by itself. Nothing is skipped; a directory that cannot be read is covered whole,
because a tenant of the same owner could make it readable.
"""

from __future__ import annotations

import os
import stat

from sandbox.config.home import home
from sandbox.config.patterns import Patterns, fold
from sandbox.policy.files import git_name, protected_patterns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sandbox.config.model import Filesystem

SOCKET = "a socket of the host"  # the rule: it leads to a program there


class Mask:
    """A path to be covered by something unreadable."""

    __slots__ = ("path", "is_dir", "rule")

    def __init__(self, path: str, is_dir: bool, rule: str) -> None:
        self.path = path
        self.is_dir = is_dir
        self.rule = rule

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


def find(filesystem: Filesystem, roots: list[str], own: Sequence[str] = ()) -> Covers:
    """What must be covered or frozen under `roots`, which are real directories as tenants will see them.

    `own`: further places of ours, beside the sandbox's home.
    """
    found = Covers()
    search = Search(filesystem, [os.path.normpath(root) for root in roots], found)
    for root in search.roots:
        search.walk(root)
    search.cover_links()
    search.cover_named()
    for place in (home(), *own):
        search.cover_own(os.path.realpath(place))
    _drop_covered(found.masks)
    return found


class Search:
    def __init__(self, filesystem: Filesystem, roots: list[str], found: Covers) -> None:
        # A root inside another is walked with it.
        self.roots = [root for root in roots if not any(_beneath(root, other) for other in roots if other != root)]
        self.filesystem = filesystem
        self.blocked = Patterns(filesystem.blocked_patterns)
        self.allowed = Patterns(filesystem.allowed_patterns)
        self.protected = protected_patterns()
        self.needles = tuple({*self.blocked.needles, *self.protected.needles, "/.git/"})
        self.found = found
        self.inodes: dict[tuple[int, int], str] = {}  # blocked files that have further names
        self.allowed_back = [self._absolute(path) for path in filesystem.allow_read]
        self.base = roots[0] if roots else "/"

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
            names, below = self.names_in(directory)
            self.found.directories.append(directory)
            if not names:
                continue
            folded = fold(f"/{'/'.join(names)}/")
            if "/head/" in folded:
                self.found.heads.append(directory)
            hit = False
            for needle in self.needles:
                if needle in folded:
                    hit = True
                    break
            if hit:
                # Only what is not covered is walked further.
                covered = self.match_all(directory, names, cut)
                below = [path for path in below if path not in covered]
            waiting += below

    def could_match(self, name: str) -> bool:
        """A fast no for nearly every name there is."""
        folded = fold(f"/{name}/")
        return any(needle in folded for needle in self.needles)

    def names_in(self, directory: str) -> tuple[list[str], list[str]]:
        """The names in a directory, and the paths of the directories among them. Host's sockets are covered here."""
        names: list[str] = []
        below: list[str] = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    names.append(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False) and is_socket(entry.path):
                        self.cover(entry.path, False, SOCKET)
        except OSError:
            self.cover(directory, True, "cannot be searched")
        return names, below

    def match_all(self, directory: str, names: list[str], cut: int) -> set[str]:
        covered = set()
        for name in names:
            path = f"{directory.rstrip('/')}/{name}"
            if self.match(path, path[cut:], directory):
                covered.add(path)
        return covered

    def match(self, path: str, relative: str, directory: str) -> bool:
        """Covers or freezes one path when a pattern says so; True when it is covered."""
        try:
            info = os.lstat(path)
        except OSError:
            return False  # gone since
        is_dir = stat.S_ISDIR(info.st_mode)
        is_link = stat.S_ISLNK(info.st_mode)
        pattern = self.blocked.match(relative, is_dir or is_link)
        if pattern is not None and not git_name(relative) and not self.allowed.match(relative, is_dir or is_link):
            if is_link:
                self.cover_target(path, pattern)
            else:
                self.cover(path, is_dir, pattern)
                if not is_dir and info.st_nlink > 1:
                    self.inodes[info.st_dev, info.st_ino] = pattern
            return not is_link
        if not is_dir and relative.rpartition("/")[2] == ".git":
            self.found.git_files.append(path)
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

    def freeze_target(self, link: str) -> None:
        """A protected name that is a link: the host runs what it leads to. The link itself no mount can hold."""
        target = os.path.realpath(link)
        if self.visible(target) and os.path.exists(target) and not any(_beneath(root, target) for root in self.roots):
            self.found.frozen[target] = None
            self.pin(os.path.dirname(target))

    def cover(self, path: str, is_dir: bool, rule: str) -> None:
        self.found.masks.setdefault(path, Mask(path, is_dir, rule))

    def cover_target(self, link: str, pattern: str) -> None:
        """A blocked name that is a link: what it leads to is the secret, whatever that is called."""
        target = os.path.realpath(link)
        if self.visible(target) and target not in self.roots and os.path.exists(target):
            info = os.stat(target)
            self.cover(target, stat.S_ISDIR(info.st_mode), f"{pattern} (by the link {link})")
            if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
                self.inodes[info.st_dev, info.st_ino] = pattern

    def visible(self, path: str) -> bool:
        return any(_beneath(path, root) for root in self.roots)

    def cover_links(self) -> None:
        """A second pass, only when a blocked file has further names: those are covered too."""
        if not self.inodes:
            return
        numbers = {inode for _, inode in self.inodes}
        for path, inode in _all_files(self.roots, self.found.masks):
            if inode in numbers:
                info = os.lstat(path)
                pattern = self.inodes.get((info.st_dev, info.st_ino))
                if pattern is not None and stat.S_ISREG(info.st_mode):
                    self.cover(path, False, f"{pattern} (by a hard link)")

    def cover_named(self) -> None:
        """`deny_read` and `deny_write`."""
        for path in self.filesystem.deny_read:
            for match in self.expanded(path):
                self.cover_around(match, [one for one in self.allowed_back if _beneath(one, match)])
        for path in self.filesystem.deny_write:
            for match in self.expanded(path):
                self.found.frozen[match] = None
                self.pin(os.path.dirname(match))

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

    def cover_around(self, path: str, kept: list[str]) -> None:
        """Covers `path` but for what `allow_read` gives back: then what lies beside the way there, piece by piece."""
        if path in kept:
            return
        if not kept:
            self.cover(path, os.path.isdir(path), "deny_read")
            return
        for entry in os.listdir(path):
            below = f"{path}/{entry}"
            if not os.path.islink(below):
                self.cover_around(below, [one for one in kept if _beneath(one, below)])

    def expanded(self, path: str) -> Iterator[str]:
        """The existing visible paths that an entry of `deny_read` or `deny_write` means; globs allowed."""
        absolute = self._absolute(path)
        if any(sign in path for sign in "*?["):
            import glob

            candidates = glob.glob(absolute, recursive=True, include_hidden=True)
        else:
            candidates = [absolute]
        for candidate in candidates:
            real = os.path.realpath(candidate)
            if self.visible(real) and os.path.exists(real):
                yield real

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.filesystem.root, os.path.expanduser(path)))


def _drop_covered(masks: dict[str, Mask]) -> None:
    """A cover beneath another is not needed, nor can it be put there: the outer one lets nobody through."""
    outer = "/ none"
    for path in sorted(masks, key=lambda one: one.split("/")):
        if _beneath(path, outer):
            del masks[path]
        elif masks[path].is_dir:
            outer = path


def _all_files(roots: list[str], covered: dict[str, Mask]) -> Iterator[tuple[str, int]]:
    waiting = list(roots)
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.path in covered:
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


def _beneath(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")
