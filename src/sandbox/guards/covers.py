"""What is covered (blocked: unreadable) or frozen (protected: read-only), and the rules that name paths."""

from __future__ import annotations

import os
import stat

from sandbox.config.paths import is_beneath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sandbox.config.model import Filesystem
    from sandbox.guards.blocked_files import BlockedFiles


class Mask:
    """A path that gets something unreadable mounted over it."""

    __slots__ = ("path", "is_dir", "rule", "inode")

    def __init__(self, path: str, is_dir: bool, rule: str) -> None:
        self.path = path
        self.is_dir = is_dir
        self.rule = rule
        self.inode = 0  # of the file that the rules were applied to, where that matters

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mask) and (self.path, self.is_dir) == (other.path, other.is_dir)

    def __repr__(self) -> str:
        return f"Mask({self.path!r}, is_dir={self.is_dir}, rule={self.rule!r})"


class Covers:
    """What was found. `pinned`: directories that must stay where they are, because something in them is frozen.

    For git: `heads`, directories that may be a repository; `git_files`, which name one; every directory and every
    symbolic link.
    """

    __slots__ = ("masks", "frozen", "pinned", "heads", "git_files", "directories", "links")

    def __init__(self) -> None:
        self.masks: dict[str, Mask] = {}
        self.frozen: dict[str, None] = {}
        self.pinned: dict[str, None] = {}
        self.heads: list[str] = []
        self.git_files: list[str] = []
        self.directories: list[str] = []
        self.links: list[str] = []


class Covering:
    """Adds to `found` what is to be covered or frozen under `roots`, which are directories of the host."""

    def __init__(
        self, filesystem: Filesystem, roots: list[str], found: Covers, blocked_before: BlockedFiles | None = None
    ) -> None:
        self.filesystem = filesystem
        self.roots = roots
        self.found = found
        self.blocked_before = blocked_before
        self.inodes: dict[tuple[int, int], str] = {}  # blocked files with more hard links than were found
        self.allowed_back = [self.absolute(path) for path in filesystem.allow_read]

    def visible(self, path: str) -> bool:
        """Whether it lies under one of the roots."""
        return any(is_beneath(path, root) for root in self.roots)

    def cover(
        self, path: str, is_dir: bool, rule: str, info: os.stat_result | None = None, named: str | None = None
    ) -> None:
        """Covers `path`, which `info` describes, and remembers it. `named`: the path by which the rule knows it."""
        mask = self.found.masks.setdefault(path, Mask(path, is_dir, rule))
        if info is None:
            return
        mask.inode = info.st_ino
        if is_dir:
            self._note_links_in(path, rule)
        fresh = self.blocked_before is None or self.blocked_before.add(path, info, rule, named)
        if fresh and not is_dir and info.st_nlink > 1:
            self.inodes[info.st_dev, info.st_ino] = rule

    def _note_links_in(self, directory: str, rule: str) -> None:
        """Notes the files in a covered directory that have more names: these may be outside it."""
        waiting = [directory]
        while waiting:
            try:
                with os.scandir(waiting.pop()) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
                        elif (info := entry.stat(follow_symlinks=False)).st_nlink > 1:
                            self.inodes[info.st_dev, info.st_ino] = rule
            except OSError:
                continue  # gone since, or nobody can list it

    def cover_target(self, link: str, pattern: str) -> None:
        """Covers what a blocked link points to: that is the secret, whatever its name."""
        target = os.path.realpath(link)
        if self.visible(target) and target not in self.roots and os.path.exists(target):
            try:
                info = os.stat(target)
            except OSError:
                return  # it has gone meanwhile
            # Under the link's path: a tenant can remove the link, and that must not unblock its target.
            self.cover(target, stat.S_ISDIR(info.st_mode), f"{pattern} (by the link {link})", info, link)

    def freeze_target(self, link: str) -> None:
        """Freezes what a protected link points to, because the host runs that. No mount can freeze the link itself."""
        target = os.path.realpath(link)
        if self.visible(target) and os.path.exists(target) and not any(is_beneath(root, target) for root in self.roots):
            self.found.frozen[target] = None
            self.pin(os.path.dirname(target))

    def pin(self, directory: str) -> None:
        """Keeps a directory and all its parents from being renamed: a tenant could put another in its place."""
        while directory not in self.roots and self.visible(directory):
            self.found.pinned[directory] = None
            directory = os.path.dirname(directory)

    def cover_named(self) -> None:
        """`deny_read` and `deny_write`."""
        for path in self.filesystem.deny_read:
            for asked, match in self.expanded(path):
                self.cover_around(match, [one for one in self.allowed_back if is_beneath(one, match)], asked)
        for path in self.filesystem.deny_write:
            for _, match in self.expanded(path):
                self.found.frozen[match] = None
                self.pin(os.path.dirname(match))
            for place in self._matches(path):
                # It wins over a narrower `allow_write`.
                self.found.frozen.update(
                    (root, None) for root in self.roots if is_beneath(root, os.path.realpath(place))
                )
            held = placeholder_of(self.absolute(path)) if self.filesystem.show_host else None
            if held is not None and self.visible(held):
                self.found.frozen[held] = None
                self.pin(os.path.dirname(held))

    def cover_around(self, path: str, kept: list[str], asked: str) -> None:
        """Covers `path`. If `allow_read` names something in it, covers everything beside that instead, one by one."""
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
        """The existing visible paths that an entry of `deny_read` or `deny_write` stands for (globs included): each as
        the entry spells it, and its real path."""
        for candidate in self._matches(path):
            real = os.path.realpath(candidate)
            if self.visible(real) and os.path.exists(real):
                yield candidate, real

    def _matches(self, path: str) -> Iterator[str]:
        absolute = self.absolute(path)
        if not any(sign in path for sign in "*?["):
            return iter([absolute])
        from sandbox.config.glob_paths import matches

        return matches(absolute, self.visible)

    def cover_secrets(self, secrets: Mapping[str, str]) -> None:
        """Covers the files that the gate reads secrets from, and whatever else no pattern blocks."""
        for path, rule in secrets.items():
            real = os.path.realpath(os.path.expanduser(path))
            if self.visible(real) and real not in self.roots and os.path.exists(real):
                # Blocked wherever it is moved: the space makes a path that no rule names.
                self.cover(real, os.path.isdir(real), rule, os.stat(real), f"{real} ")
                self.pin(os.path.dirname(real))  # the host reads it again by its path

    def cover_own(self, place: str) -> None:
        """Covers our own config, record and registry: tenants neither see nor replace them."""
        if self.visible(place) and os.path.isdir(place):
            self.cover(place, True, "the sandbox's own")
            self.pin(os.path.dirname(place))

    def absolute(self, path: str) -> str:
        """An entry of the configuration as a path."""
        return os.path.abspath(os.path.join(self.filesystem.root, os.path.expanduser(path)))


def placeholder_of(path: str) -> str | None:
    """If `path` does not exist because a file is where a directory above it would be, that file's real path."""
    path = os.path.abspath(path)
    above = path
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    return os.path.realpath(above) if above != path and not os.path.isdir(above) else None


def drop_covered(masks: dict[str, Mask]) -> None:
    """Drops covers below another cover: nobody can pass the outer one, not even to mount something."""
    outer = "/ none"
    for path in sorted(masks, key=lambda one: one.split("/")):
        if is_beneath(path, outer):
            del masks[path]
        elif masks[path].is_dir:
            outer = path


def inside_one(path: str, masks: dict[str, Mask]) -> bool:
    """Whether a directory above `path` is covered."""
    while len(path) > 1:
        path = os.path.dirname(path)
        if path in masks:
            return True
    return False
