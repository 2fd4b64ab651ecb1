"""Files that have a second path, through a symbolic link to a directory, are blocked if a rule blocks either path.

Rules about paths know exceptions: packages (`node_modules`), branches of git. A tenant can move a directory of the
project into such a place and leave a link where it was. A file that the person then creates by the usual path
(`app/.env`) really is in `node_modules`, where it would not be blocked.
"""

from __future__ import annotations

import os
import stat

from sandbox.config.paths import is_beneath
from sandbox.config.patterns import Patterns, fold
from sandbox.policy.protected import GIT_NAMES, git_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.guards.search import Search

SIGNS = frozenset("*?[\\")
ANY_NAME = "\1"  # a name that no pattern names, but for those that match every name


class LinkedDirectories:
    """The links to directories that matter to the rules of one search."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._ways: dict[str, dict[str, None]] = {}  # directory -> its further paths
        self._excepted: dict[str, bool] = {}
        self._words = _words(search.allowed) | {top.partition("/")[0] for top in GIT_NAMES}
        self._blocked_words = _words(search.blocked)

    def for_search(self, search: Search) -> LinkedDirectories:
        """The same ways, for another search by the same rules."""
        made = LinkedDirectories(search)
        made._ways = self._ways
        return made

    def pattern_for(self, path: str, is_dir: bool) -> tuple[str, str] | None:
        """The pattern that blocks `path` by another way, and that way."""
        above = os.path.dirname(path)
        while self._ways and len(above) > 1:
            for way in self._ways.get(above, ()):
                other = way + path[len(above) :]
                pattern = self._search.pattern_for(self._relative(other), is_dir)
                if pattern is not None:
                    return pattern, other
            above = os.path.dirname(above)
        return None

    def follow(self, links: list[str]) -> None:
        """Notes where `links` lead, and covers what the rules block by these ways. Empties the list."""
        while links:
            # Once for all links to a directory: a tenant can make thousands, and every later start would walk for each.
            led_to: dict[str, None] = {}
            while links:
                target = self._note(links.pop())
                if target is not None:
                    led_to[target] = None
            for target in led_to:
                self._look_below(target, links)

    def _note(self, link: str) -> str | None:
        """Where a link leads, if that is a further way for the rules; else None."""
        way = self._path_of(link)
        if way is None or not os.path.isdir(link):
            return None
        target = os.path.realpath(link)
        if not self._search.visible(target) or is_beneath(link, target):
            return None
        known = self._ways.get(target, {})
        # Where only exceptions matter, one way without them says as much as a hundred.
        if way in known or not self._matters(self._relative(way), self._relative(target), bool(known)):
            return None
        self._ways.setdefault(target, {})[way] = None
        return target

    def _path_of(self, link: str) -> str | None:
        """The path of a link by which rules apply to it; None if everything there is excepted anyway."""
        directory, _, name = link.rpartition("/")
        if not self._is_excepted(directory):
            return link
        above = directory
        while self._ways and len(above) > 1:
            for way in self._ways.get(above, ()):
                return f"{way}{directory[len(above) :]}/{name}"
            above = os.path.dirname(above)
        return None

    def _is_excepted(self, directory: str) -> bool:
        found = self._excepted.get(directory)
        if found is None:
            below = f"{self._relative(directory)}/{ANY_NAME}"
            found = git_name(below) or self._search.allowed.match(below, False) is not None
            self._excepted[directory] = found
        return found

    def _matters(self, way: str, target: str, known: bool) -> bool:
        """Whether a rule can say something else about what lies in `target` when it is reached by `way`."""
        if "" in self._blocked_words or not self._blocked_words.isdisjoint(fold(way).split("/")):
            return True
        return not known and ("" in self._words or not self._words.isdisjoint(fold(target).split("/")))

    def _look_below(self, start: str, links: list[str]) -> None:
        waiting = [start]
        while waiting:
            directory = waiting.pop()
            try:
                with os.scandir(directory) as listed:
                    entries = list(listed)
            except OSError:
                continue  # covered by the search itself
            for entry in entries:
                if entry.is_symlink():
                    links.append(entry.path)
                if self._search.could_match(entry.name) and self._covers(entry.path):
                    continue
                if entry.is_dir(follow_symlinks=False) and entry.path not in self._search.found.masks:
                    waiting.append(entry.path)

    def _covers(self, path: str) -> bool:
        try:
            return self.cover(path, os.lstat(path))
        except OSError:
            return True  # gone since

    def cover(self, path: str, info: os.stat_result) -> bool:
        """Covers `path` if a rule blocks it by another way."""
        is_link, is_dir = stat.S_ISLNK(info.st_mode), stat.S_ISDIR(info.st_mode)
        found = self.pattern_for(path, is_link or is_dir)
        if found is None:
            return False
        pattern, way = found
        if is_link:
            self._search.cover_target(path, pattern)
        else:
            # Under that path: a tenant can take the link away, and that must not unblock the file.
            self._search.cover(path, is_dir, f"{pattern} (as {way})", info, way)
        return True

    def _relative(self, path: str) -> str:
        for root in self._search.roots:
            if path == root:
                return ""
            if is_beneath(path, root):
                return path[len(root.rstrip("/")) + 1 :]
        return path[1:]


def _words(patterns: Patterns) -> set[str]:
    """The names of directories in patterns about paths; "" if one of them can be any name."""
    found = set()
    for one in patterns.patterns:
        for word in one.body.split("/")[:-1] if one.by_path else ():
            if word != "**":
                found.add("" if SIGNS & set(word) else word)
    return found
