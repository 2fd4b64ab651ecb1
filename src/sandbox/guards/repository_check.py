"""Checks the repositories in trees that tenants write to, and makes harmless what the host's git did not trust before.

A repository that a tenant created keeps what it needs to be a repository. A trusted one is frozen by mounts
(`layout/hiding.py`). What no mount can freeze (names that do not exist yet, links) is restored here.
"""

from __future__ import annotations

import os

from sandbox.config.patterns import fold
from sandbox.guards.git_directories import UNDER_WAY, beneath, is_another, is_repository, work_tree_of
from sandbox.guards.git_marker import identity
from sandbox.guards.written_trees import attempt, local_devices, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sandbox.guards.git_marker import Baseline
    from sandbox.guards.git_undo import Neutralise
    from sandbox.guards.written_trees import Tell

HEAD = "/head/"  # among the folded names in a directory: it may be a repository


class RepositoryCheck:
    """What was trusted in the trees `roots`, and what is done to everything else."""

    def __init__(self, roots: Sequence[str], tell: Tell, known: Sequence[Baseline] = (), *, last: bool = False) -> None:
        """`last`: no tenant is left."""
        self.roots = roots
        self.tell = tell
        self.known = known
        self.last = last
        self._neutralise: Neutralise | None = None

    # -- one path

    def repository(self, directory: str) -> bool:
        """Makes a repository harmless unless it is trusted. False if it is, or if it is none."""
        if not beneath(directory, self.roots) or self.is_trusted(directory) or not is_repository(directory):
            return False
        work = self._undo()
        work.repository(directory)
        self._links(directory)
        self._follow(work)
        return True

    def git_file(self, path: str) -> None:
        """Checks a `.git` that is a file or a link, and the repository that it names."""
        if not os.path.lexists(path) or any(path in known.git_files for known in self.known):
            return
        work = self._undo()
        work.git_file(path)
        self._follow(work)

    def link(self, path: str) -> None:
        """Undoes a new link if it is in a repository, where git makes none."""
        above = os.path.dirname(path)
        while beneath(above, self.roots) and not is_repository(above):
            above = os.path.dirname(above)
        if beneath(above, self.roots) and not self._in_work_tree(above, path):
            self._take_links([path])

    def name(self, path: str) -> None:
        """Restores a path at which there was nothing, a link that led to something trusted, or a configuration."""
        for known in self.known:
            if path in known.trusted.absent:
                self._undo().aside(path)
            elif path in known.trusted.links:
                self._undo().relink(path, known.trusted.links[path])
            elif path in known.trusted.configs and is_another(path, known.trusted.configs[path]):
                self._undo().settings(path, known.trusted.settings)

    def is_trusted(self, directory: str) -> bool:
        expected = next((one.repositories[directory] for one in self.known if directory in one.repositories), "")
        return bool(expected) and identity(directory) == expected

    # -- everything

    def everything(
        self, changed: Iterable[tuple[str, list[str]]], suspects: Iterable[str] = (), since: int = 0
    ) -> None:
        """Checks directories that have changed, `suspects`, and what was trusted and may have changed since a time."""
        touched: dict[str, None] = {}  # trusted repositories
        for directory, names in changed:
            touched.update(dict.fromkeys(self._trusted_around(directory)))
            attempt(self.tell, directory, self._directory, directory, names)
        for directory in suspects:
            attempt(self.tell, directory, self.repository, directory)
        for known in self.known:
            self._restore(known, since)
        for directory in touched:
            attempt(self.tell, directory, self._links, directory)

    def _directory(self, directory: str, names: list[str]) -> None:
        folded = fold(f"/{'/'.join(names)}/")
        if HEAD in folded:
            attempt(self.tell, directory, self.repository, directory)
        if "/.git/" in folded and is_git_file(path := f"{directory}/.git"):
            attempt(self.tell, path, self.git_file, path)

    def _restore(self, known: Baseline, since: int) -> None:
        for link, target in known.trusted.links.items():
            if not os.path.islink(link) or os.readlink(link) != target:
                attempt(self.tell, link, self._undo().relink, link, target)
        for path in known.trusted.absent:
            if os.path.lexists(path):
                attempt(self.tell, path, self._undo().aside, path)
        for path, state in known.trusted.configs.items():
            if is_another(path, state):
                attempt(self.tell, path, self._undo().settings, path, known.trusted.settings)
        if known.repositories:
            from sandbox.guards.git_index import indexes

            local = local_devices()
        for directory in known.repositories:
            if any(os.path.lexists(f"{directory}/{name}") for name in UNDER_WAY):
                attempt(self.tell, directory, self._undo().rebase, directory, known.trusted.commands)
            for name in indexes(directory):
                if _is_changed(f"{directory}/{name}", since, local):
                    attempt(self.tell, f"{directory}/{name}", self._undo().index, directory, name)

    # -- how

    def _undo(self) -> Neutralise:
        """Created when it is first needed: most runs create no repository."""
        if self._neutralise is None:
            self._neutralise = _neutraliser(self.roots, self.tell)
        self._neutralise.last = self.last
        return self._neutralise

    def _follow(self, work: Neutralise) -> None:
        """Checks the repositories that are named by files which were left alone."""
        for _ in range(100):
            if not work.waiting:
                return
            directory = work.waiting.pop()
            if not self.is_trusted(directory):
                work.repository(directory)
                self._links(directory)

    def _links(self, repository: str) -> None:
        """Undoes every link in a repository that was not there at the start."""
        found: list[str] = []
        trees = {os.path.dirname(one) for known in self.known for one in known.git_files}
        trees = {one for one in trees if beneath(one, [repository]) and self._in_work_tree(repository, f"{one}/x")}
        for _ in walk(repository, self.tell, trees, links=found):
            pass
        if found:
            self._take_links(found)

    def _take_links(self, links: Iterable[str]) -> None:
        """Takes away links in a repository: git would write through them, its messages and logs into files that a
        tenant chose. Restores those that were there at the start."""
        from sandbox.guards.git_undo import take_link

        for path in links:
            before = next((one.links[path] for one in self.known if path in one.links), None)
            if before is None or os.readlink(path) != before:
                take_link(path, self.tell)
            if before is not None:
                self._undo().relink(path, before)

    def _in_work_tree(self, repository: str, path: str) -> bool:
        """Whether `path` lies in a work tree that the person keeps within a bare repository."""
        trusted = [known.git_files for known in self.known]
        return work_tree_of(repository, path, lambda one: any(one in files for files in trusted)) is not None

    def _trusted_around(self, directory: str) -> Iterator[str]:
        """The trusted repositories that a directory is, or is in."""
        while directory != "/":
            if any(directory in known.repositories for known in self.known):
                yield directory
            directory = os.path.dirname(directory)


def is_git_file(path: str) -> bool:
    """Whether `.git` here is something that names a repository elsewhere."""
    return os.path.islink(path) or not os.path.isdir(path)


def _neutraliser(roots: Sequence[str], tell: Tell) -> Neutralise:
    """Reads the person's own git settings, which apply to every repository."""
    from sandbox.guards.git_directories import TrustedGit
    from sandbox.guards.git_examination import Examination
    from sandbox.guards.git_undo import Neutralise

    return Neutralise(roots, tell, Examination([], TrustedGit()).personal)


def _is_changed(path: str, since: int, local: set[int]) -> bool:
    try:
        both = os.lstat(path), os.stat(path)
    except OSError:
        return False
    return any(info.st_ctime_ns >= since or info.st_dev not in local for info in both)
