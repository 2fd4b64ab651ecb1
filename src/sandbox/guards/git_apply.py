"""Which changes of an overlay would make the host's git run something, once they are applied.

Decided by what would be there afterwards: the host's files with the overlay on top.
"""

from __future__ import annotations

import os

from sandbox.guards.git_config import harmless
from sandbox.guards.git_directories import (
    CONFIGS,
    OPTIONS,
    REBASE_STEPS,
    UNDER_WAY,
    TrustedGit,
    beneath,
    common_directory,
    is_repository,
    read_config,
    text_of,
    work_tree_of,
)
from sandbox.guards.git_examination import Examination, is_command, runs_a_path
from sandbox.guards.git_index import is_index, leads_astray
from sandbox.guards.repository_check import is_git_file
from sandbox.guards.written_trees import walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

READ = (*CONFIGS, "commondir")
OWN = (*READ, "HEAD", "objects", "refs", "hooks")  # what makes a directory a repository, and what git runs there


def risky(layer: str, root: str, paths: Iterable[str]) -> set[str]:
    """Those of `paths` (relative to the project) that git would run or obey, or that would redirect it.

    `layer` and `root` are directories. A tenant wrote the first, so nothing in it is trusted, and no read of it waits.
    """
    merged = _Merged(layer, root)
    examination = Examination([root], TrustedGit())
    trusted = _trusted(root, examination)
    # A relative path in the person's own settings applies to every repository, also to a new one.
    hooks = [f"/{value.strip('/')}/" for name, value in examination.personal if name == "core.hookspath" and value]
    return {
        path
        for path in paths
        if merged.is_risky(path) or beneath(f"{root}/{path}", trusted) or any(one in f"/{path}/" for one in hooks)
    }


def is_object(root: str, path: str) -> bool:
    """Whether a path of the project is, or is in, the store of objects of a repository that the host has."""
    parts = path.split("/")
    return any(one == "objects" and is_repository("/".join((root, *parts[:at]))) for at, one in enumerate(parts))


def makes_a_repository(root: str, path: str) -> bool:
    """Whether a directory of the host would stop being a repository without this path of the project."""
    above, _, name = path.rpartition("/")
    return name in ("HEAD", "objects", "refs") and is_repository(f"{root}/{above}" if above else root)


class _Merged:
    def __init__(self, layer: str, root: str) -> None:
        self._layer = layer
        self._root = root
        self._repositories: dict[str, bool] = {}
        self._unsafe: dict[str, bool] = {}

    def is_risky(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        if name == ".git" and is_git_file(self._where(path)):
            return True
        parts = path.split("/")
        for end in range(len(parts) + 1):  # the project itself can become one
            repository = "/".join(parts[:end])
            inside = "/".join(parts[end:])
            if self.is_repository(repository) and self._matters(repository, inside):
                return True
        return False

    def is_repository(self, directory: str) -> bool:
        """Whether git would treat `directory` as a repository afterwards."""
        known = self._repositories.get(directory)
        if known is None:
            has = [self._has(f"{directory}/{name}") for name in ("HEAD", "commondir", "objects", "refs")]
            known = self._repositories[directory] = has[0] and (has[1] or (has[2] and has[3]))
        return known

    def _matters(self, repository: str, inside: str) -> bool:
        if os.path.islink(f"{self._layer}/{repository}/{inside}") and not self._in_work_tree(repository, inside):
            return True  # git makes none, and would write through it
        if is_repository(f"{self._root}/{repository}"):  # the host's own: none of its settings are a tenant's
            hook = inside.startswith("hooks/") and not inside.endswith(".sample")
            return inside in READ or hook or self._leads_astray(repository, inside)
        if not repository and inside.split("/")[0] not in OWN:
            return False  # the project's other files are applied, and without these it is no repository
        return self._is_unsafe(repository)

    def _in_work_tree(self, repository: str, inside: str) -> bool:
        """Whether it lies in a work tree that the person keeps within a bare repository."""
        above = os.path.join(self._root, repository).rstrip("/")
        return work_tree_of(above, f"{above}/{inside}", os.path.isfile) is not None

    def _is_unsafe(self, repository: str) -> bool:
        """Whether a new repository has any setting that is not harmless: then no part of it is applied."""
        known = self._unsafe.get(repository)
        if known is None:
            known = self._has(f"{repository}/commondir")
            names = _names(f"{self._layer}/{repository}")
            known = known or any(self._leads_astray(repository, one) for one in (*names, *OPTIONS, REBASE_STEPS))
            for name in CONFIGS:
                path = self._where(f"{repository}/{name}")
                if os.path.lexists(path):
                    entries = None if os.path.islink(path) else read_config(path)
                    known = known or entries is None or not all(harmless(one) for one in entries)
            hooks = self._where(f"{repository}/hooks")
            known = known or os.path.islink(hooks) or any(not one.endswith(".sample") for one in _names(hooks))
            self._unsafe[repository] = known = known or self._has_links(repository)
        return known

    def _has_links(self, repository: str) -> bool:
        """Whether a link is in it, which may be left from another overlay."""
        links: list[str] = []
        for top in (self._layer, self._root):
            for _ in walk(f"{top}/{repository}", lambda *_: None, links=links):
                pass
        return bool(links)

    def _leads_astray(self, repository: str, inside: str) -> bool:
        """Whether a file that git keeps for itself has content that git would not have written."""
        path = self._where(f"{repository}/{inside}")
        if inside in UNDER_WAY:
            return os.path.islink(path)
        if inside == REBASE_STEPS:
            return self._commands(repository)
        if inside in OPTIONS:
            return os.path.islink(path) or runs_a_path(path)
        if not is_index(inside):
            return False
        config = self._where(f"{repository}/config")
        if not os.path.lexists(config):
            config = f"{common_directory(f'{self._root}/{repository}')}/config"
        return os.path.islink(path) or leads_astray(path, config)

    def _commands(self, repository: str) -> bool:
        text = text_of(self._where(f"{repository}/{REBASE_STEPS}"))
        return text is None or any(is_command(line) for line in text.split("\n"))

    def _has(self, path: str) -> bool:
        return os.path.lexists(f"{self._layer}/{path}") or os.path.lexists(f"{self._root}/{path}")

    def _where(self, path: str) -> str:
        in_layer = f"{self._layer}/{path}"
        return in_layer if os.path.lexists(in_layer) else f"{self._root}/{path}"


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _trusted(root: str, examination: Examination) -> list[str]:
    """What the host's own repositories use outside their own directories: hooks, included files, programs."""
    for place, names in walk(root, lambda *_: None):
        if "HEAD" in names and is_repository(place):
            examination.repository(place)
    found = examination.trusted
    return [*found.frozen, *found.absent, *found.links]
