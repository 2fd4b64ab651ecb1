"""git repositories in the trees that a sandbox's tenants can write to.

What is there at the start is trusted. While the sandbox runs, and when it has ended, the repositories are checked.
Whatever the host's git would run and was not trusted is undone.

A repository that a tenant creates keeps what it needs to be a repository. A trusted one is frozen by mounts
(`layout/hiding.py`). What no mount can freeze (names that do not exist yet, links) is restored here.

The check at the end visits only directories that changed since the start, by their ctime, which nobody can set. If the
file system does not use this machine's clock, every directory is visited.
"""

from __future__ import annotations

import os
import stat
import time

from sandbox.config.patterns import fold
from sandbox.guards.git_directories import UNDER_WAY, beneath, is_another, is_repository, work_tree_of
from sandbox.guards.git_marker import Baseline, Marker, all_markers, identity, markers_of, moved_path
from sandbox.guards.nofollow import O_PATH, path_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sandbox.config.patterns import Patterns
    from sandbox.guards.git_undo import Neutralise

    Tell = Callable[[str, str], object]

MARGIN = 100_000_000  # ns: file systems use a clock that may be a tick behind
HEAD = "/head/"  # among the folded names in a directory: it may be a repository
LOCAL = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "overlay", "zfs", "bcachefs"))
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
        self.settings: list[str] = []  # the trusted configurations, of which each setting is checked
        self._hooked: list[str] = []
        self._since = time.time_ns() - MARGIN
        self._clock = time.time() - time.monotonic()
        self._directories: list[str] = []
        self._suspects: list[str] = []
        self._known: list[Baseline] = []
        self._markers: list[tuple[str, Marker]] = []
        self._places: list[tuple[int, str]] = []  # the roots, which somebody may rename, and their paths
        self.moved: dict[str, str] = {}  # after `finish`: the roots that have another path now
        self._neutralise: Neutralise | None = None
        self._last = False
        os.makedirs(f"{home}/git", 0o700, exist_ok=True)
        for root in self.roots:
            above = root
            while (above := os.path.dirname(above)) != "/":
                if os.path.exists(path := markers_of(home, above)):
                    repair(path, tell, above)
            marker = Marker(markers_of(home, root))
            self._markers.append((root, marker))
            if (left := marker.left_at(root)) is not None:
                undo(left, tell)
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
        for root, marker in self._markers:
            known = marker.shared
            if known is None:
                known = baseline(root)
                marker.write(known)
            self._known.append(known)
            self.settings += known.trusted.configs
        self._suspects = [one for one in heads if beneath(one, self.roots) and not self._is_trusted(one)]
        self._hooked = list(hooked)

    def appeared(self, heads: Iterable[str], git_files: Iterable[str]) -> None:
        """Checks repositories that have just appeared, while the sandbox runs."""
        for path in git_files:
            self._git_file(path)
        for directory in heads:
            self._repository(directory)

    def look_again(self) -> None:
        """Checks everything, while the sandbox runs, because some new names were missed."""
        self._at_end(self._changed(), None)

    def look(self, path: str) -> bool:
        """Checks one path that has just appeared or been written. True when it belongs to a new repository."""
        name = os.path.basename(path)
        parent = os.path.dirname(path)
        for known in self._known:
            if path in known.trusted.absent:
                self._undo().aside(path)
            elif path in known.trusted.links:
                self._undo().relink(path, known.trusted.links[path])
            elif path in known.trusted.configs and is_another(path, known.trusted.configs[path]):
                self._undo().settings(path, known.trusted.settings)
        if name == ".git" and is_git_file(path):
            self._git_file(path)
        elif os.path.islink(path):
            self._look_at_link(path)
        if name not in TELLING and not parent.endswith("/hooks"):
            return False
        repository = os.path.dirname(parent) if parent.endswith("/hooks") else parent
        return beneath(repository, self.roots) and self._repository(repository)

    def finish(self, protected: Patterns | None = None) -> None:
        """Undoes the rest and releases the trees. Call it when no tenant is left. Idempotent."""
        if self._known:
            if time.time() - time.monotonic() < self._clock - 0.05:
                self._since = 0  # somebody set the clock back
            self._last = True
            self._follow_roots()
            self._at_end(self._changed(), protected)
            self.made += [one for one in self._hooked if os.path.lexists(one)]
            self._known, self._hooked = [], []
        for _, marker in self._markers:
            marker.close()
        for place, _ in self._places:
            os.close(place)
        self._markers, self._places = [], []

    def abandon(self) -> None:
        """Releases the trees without a check, because nothing ran."""
        self._known = []
        self.finish()

    def _follow_roots(self) -> None:
        """Looks where the trees are now, if somebody has renamed one, or a directory above it."""
        for root, (place, before) in zip(self.roots, self._places, strict=True):
            if (now := path_of(place)) != before and os.path.isdir(now):
                self.moved[root] = now
        for old, new in self.moved.items():
            self.roots = [moved_path(old, new, one) for one in self.roots]
            self._directories = [moved_path(old, new, one) for one in self._directories]
            self._suspects = [moved_path(old, new, one) for one in self._suspects]
            self._hooked = [moved_path(old, new, one) for one in self._hooked]
            self._known = [one.moved(new) if one.root == old else one for one in self._known]
            self._neutralise = None  # knows the roots

    # -- checking

    def _at_end(self, changed: Iterable[tuple[str, list[str]]], protected: Patterns | None) -> None:
        touched: dict[str, None] = {}  # trusted repositories
        for directory, names in changed:
            touched.update(dict.fromkeys(self._trusted_around(directory)))
            attempt(self._tell, directory, self._directory, directory, names, protected)
        for directory in self._suspects:
            attempt(self._tell, directory, self._repository, directory)
        for known in self._known:
            restore(known, self._undo, self._since, self._tell)
        for directory in touched:
            attempt(self._tell, directory, self._links, directory)

    def _directory(self, directory: str, names: list[str], protected: Patterns | None) -> None:
        folded = fold(f"/{'/'.join(names)}/")
        if HEAD in folded:
            attempt(self._tell, directory, self._repository, directory)
        if "/.git/" in folded and is_git_file(path := f"{directory}/.git"):
            attempt(self._tell, path, self._git_file, path)
        if protected is not None and any(needle in folded for needle in protected.needles):
            self._note_made(directory, names, protected)

    def _repository(self, directory: str) -> bool:
        if not beneath(directory, self.roots) or self._is_trusted(directory) or not is_repository(directory):
            return False
        work = self._undo()
        work.repository(directory)
        self._links(directory)
        self._follow(work)
        return True

    def _git_file(self, path: str) -> None:
        if not os.path.lexists(path) or any(path in known.git_files for known in self._known):
            return
        work = self._undo()
        work.git_file(path)
        self._follow(work)

    def _follow(self, work: Neutralise) -> None:
        """Checks the repositories that are named by files which were left alone."""
        for _ in range(100):
            if not work.waiting:
                return
            directory = work.waiting.pop()
            if not self._is_trusted(directory):
                work.repository(directory)
                self._links(directory)

    def _links(self, repository: str) -> None:
        """Undoes every link in a repository that was not there at the start."""
        found: list[str] = []
        trees = {os.path.dirname(one) for known in self._known for one in known.git_files}
        trees = {one for one in trees if beneath(one, [repository]) and self._in_work_tree(repository, f"{one}/x")}
        for _ in walk(repository, self._tell, trees, links=found):
            pass
        if found:
            undo_links(self._undo(), found, self._known)

    def _look_at_link(self, path: str) -> None:
        """The same for one link that has just appeared."""
        above = os.path.dirname(path)
        while beneath(above, self.roots) and not is_repository(above):
            above = os.path.dirname(above)
        if beneath(above, self.roots) and not self._in_work_tree(above, path):
            undo_links(self._undo(), [path], self._known)

    def _in_work_tree(self, repository: str, path: str) -> bool:
        """Whether `path` lies in a work tree that the person keeps within a bare repository."""
        trusted = [known.git_files for known in self._known]
        return work_tree_of(repository, path, lambda one: any(one in files for files in trusted)) is not None

    def _trusted_around(self, directory: str) -> Iterator[str]:
        """The trusted repositories that a directory is, or is in."""
        while directory != "/":
            if any(directory in known.repositories for known in self._known):
                yield directory
            directory = os.path.dirname(directory)

    def _is_trusted(self, directory: str) -> bool:
        expected = next((one.repositories[directory] for one in self._known if directory in one.repositories), "")
        return bool(expected) and identity(directory) == expected

    def _undo(self) -> Neutralise:
        """Created when it is first needed: most runs create no repository."""
        if self._neutralise is None:
            self._neutralise = neutraliser(self.roots, self._tell)
        self._neutralise.last = self._last
        return self._neutralise

    def _note_made(self, directory: str, names: list[str], protected: Patterns) -> None:
        top = next((root for root in self.roots if beneath(directory, [root])), directory)
        cut = len(top.rstrip("/")) + 1
        if "/.git/" in f"{directory}/":
            return  # checked separately
        if "/node_modules/" in f"{directory}/" or "/site-packages/" in f"{directory}/":
            return  # installed packages come with their authors' editor settings; nobody opens them as projects
        for name in names:
            path = f"{directory}/{name}"
            if protected.match(path[cut:], True) and len(self.made) < 1000:
                known = any(beneath(path, list(one.protected)) for one in self._known)
                if not known and not _is_empty(path):
                    self.made.append(path)

    def _changed(self) -> Iterator[tuple[str, list[str]]]:
        """Directories in which something was created or moved since the start, and the names in them."""
        local = _local_devices()
        known = set(self._directories)
        led_out: set[str] = set()  # what a tenant has put a link in place of that leads out of what tenants write
        for directory in self._directories:  # each after the one that it is in
            try:
                info = os.lstat(directory)
            except OSError:
                continue
            is_out = stat.S_ISLNK(info.st_mode) and not beneath(os.path.realpath(directory), self.roots)
            if is_out or os.path.dirname(directory) in led_out:
                led_out.add(directory)
            elif info.st_ctime_ns >= self._since or info.st_dev not in local:
                yield from walk(directory, self._tell, known)


def walk(
    top: str, tell: Tell, known: set[str] | frozenset[str] = frozenset(), links: list[str] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yields a directory and all below it that are not `known`, each with the names in it. Adds symbolic links to
    `links`. Directories that nobody may look into are open until the end of the walk."""
    waiting = [top]
    opened: list[tuple[str, int]] = []
    try:
        while waiting:
            directory = waiting.pop()
            names: list[str] = []
            try:
                entries = _entries(directory, opened)
            except OSError:
                if os.path.lexists(directory):
                    tell(directory, "")  # a tenant can hide from us what the host's git would still find by name
                continue
            for entry in entries:
                names.append(entry.name)
                if entry.path not in known and _is_directory(entry):
                    waiting.append(entry.path)
                elif links is not None and entry.is_symlink():
                    links.append(entry.path)
            yield directory, names
    finally:
        for directory, mode in reversed(opened):
            try:
                _set_mode(directory, mode)
            except OSError:
                pass  # it was moved aside


def attempt(tell: Tell, path: str, check: Callable[..., object], *given: object) -> None:
    """Calls `check`. What a tenant left to make it fail is reported, and the caller goes on with the rest."""
    try:
        check(*given)
    except Exception:  # noqa: BLE001 - not silently: the person and whoever reads the record learn of it
        tell(path, "")


def _is_empty(path: str) -> bool:
    """Whether it is a directory that is known to be empty."""
    try:
        return os.path.isdir(path) and not os.listdir(path)
    except OSError:
        return False


def is_git_file(path: str) -> bool:
    """Whether `.git` here is something that names a repository elsewhere."""
    return os.path.islink(path) or not os.path.isdir(path)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return True  # walking it reports it


def _entries(directory: str, opened: list[tuple[str, int]]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except PermissionError:
        opened.append((directory, _set_mode(directory, 0o700)))
        with os.scandir(directory) as entries:
            return list(entries)


def _set_mode(directory: str, mode: int) -> int:
    """Sets a directory's mode, and returns the one it had. Follows no link."""
    from sandbox.guards.nofollow import open_in_place

    place = open_in_place(directory)
    try:
        before = os.stat(place).st_mode & 0o7777
        os.chmod(f"/proc/self/fd/{place}", mode)
    finally:
        os.close(place)
    return before


def _local_devices() -> set[int]:
    """Devices of file systems that use this machine's clock."""
    found = set()
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            before, _, after = line.partition(b" - ")
            if after.split(b" ", 1)[0].decode("ascii", "replace") in LOCAL:
                major, minor = before.split(b" ", 3)[2].split(b":")
                found.add(os.makedev(int(major), int(minor)))
    return found


def neutraliser(roots: Sequence[str], tell: Tell) -> Neutralise:
    """Reads the person's own git settings, which apply to every repository."""
    from sandbox.guards.git_directories import TrustedGit
    from sandbox.guards.git_examination import Examination
    from sandbox.guards.git_undo import Neutralise

    return Neutralise(roots, tell, Examination([], TrustedGit()).personal)


def undo_links(work: Neutralise, links: Iterable[str], known: Sequence[Baseline]) -> None:
    """Takes away links in a repository, where git makes none: git would write through them, its messages and logs into
    files that a tenant chose. Restores those that were there at the start."""
    from sandbox.guards.git_undo import take_link

    for path in links:
        before = next((one.links[path] for one in known if path in one.links), None)
        if before is None or os.readlink(path) != before:
            take_link(path, work.tell)
        if before is not None:
            work.relink(path, before)


def restore(known: Baseline, undo: Callable[[], Neutralise], since: int, tell: Tell) -> None:
    """Restores what was trusted and could not be frozen."""
    for link, target in known.trusted.links.items():
        if not os.path.islink(link) or os.readlink(link) != target:
            attempt(tell, link, undo().relink, link, target)
    for path in known.trusted.absent:
        if os.path.lexists(path):
            attempt(tell, path, undo().aside, path)
    for path, state in known.trusted.configs.items():
        if is_another(path, state):
            attempt(tell, path, undo().settings, path, known.trusted.settings)
    if known.repositories:
        from sandbox.guards.git_index import indexes

        local = _local_devices()
    for directory in known.repositories:
        if any(os.path.lexists(f"{directory}/{name}") for name in UNDER_WAY):
            attempt(tell, directory, undo().rebase, directory, known.trusted.commands)
        for name in indexes(directory):
            if _is_changed(f"{directory}/{name}", since, local):
                attempt(tell, f"{directory}/{name}", undo().index, directory, name)


def _is_changed(path: str, since: int, local: set[int]) -> bool:
    try:
        both = os.lstat(path), os.stat(path)
    except OSError:
        return False
    return any(info.st_ctime_ns >= since or info.st_dev not in local for info in both)


def undo(left: Baseline, tell: Tell) -> None:
    """Checks a whole tree whose sandboxes were killed."""
    if not os.path.isdir(left.root):
        return
    work = object.__new__(Repositories)
    work.roots, work._tell, work._known, work._suspects = [left.root], tell, [left], []
    work._neutralise, work.made, work._since, work._last = None, [], 0, True
    work._at_end(walk(left.root, tell), None)


def repair(path: str, tell: Tell, root: str | None = None) -> str | None:
    """Undoes what killed sandboxes left behind in one marker's tree, unless a sandbox still runs there. `root`: where
    the tree is now, if that is known. Returns the tree's path if it is there no more; then the marker stays."""
    try:
        marker = Marker(path)
    except OSError:
        return None
    if marker.shared is not None:
        marker.let_go()
        return None
    if marker.left is not None:
        root = root or marker.left.root
        if markers_of(os.path.dirname(os.path.dirname(path)), root) != path and not marker.is_old():
            marker.let_go()
            return root
        if (left := marker.left_at(root)) is not None:
            undo(left, tell)
    marker.close(remove=True)
    return None


def repair_all(home: str, tell: Tell) -> list[str]:
    """The same for every tree, for `sandbox prune`. Returns the paths at which they are no more."""
    gone = [repair(path, tell) for path in all_markers(home)]
    return [root for root in gone if root is not None]
