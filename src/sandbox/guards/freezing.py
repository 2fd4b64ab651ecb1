"""Which paths are frozen at the start because of git, and what is written down as trusted."""

from __future__ import annotations

import os
import stat
from _functools import partial

from sandbox.guards.git_directories import TrustedGit, beneath, common_directory, is_repository
from sandbox.guards.git_marker import Baseline, identity
from sandbox.policy.protected import ENTERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Protocol

    from sandbox.guards.repositories import Repositories

    class Covers(Protocol):
        """What the walk at the start found (`search.py`)."""

        frozen: dict[str, None]
        pinned: dict[str, None]
        heads: list[str]
        git_files: list[str]
        directories: list[str]
        links: list[str]


def freeze_repositories(
    covers: Covers,
    visible: Sequence[str],
    repositories: Repositories | None,
    protected: dict[str, None],
    *,
    keep_settings: bool = True,
) -> None:
    """Freezes what git and shells of the host trust in `visible`; notes it in `repositories` where tenants write.

    `keep_settings`: whether tenants may not write `.git/config`."""
    found = [one for one in covers.heads if is_repository(one)]
    entered = [one for one in covers.frozen if os.path.basename(one) in ENTERED]
    trusted = TrustedGit()
    if found or covers.git_files or entered:
        from sandbox.guards.git_examination import Examination

        if repositories is not None:
            _make_hooks([one for one in found if beneath(one, repositories.roots)])
        examination = Examination(visible, trusted)
        for directory in found:
            examination.repository(directory)
        for path in covers.git_files:
            examination.git_file(path)
        for path in _sourced(entered):
            examination.place(path)
    for path in trusted.frozen:
        covers.frozen[path] = None
    for path in (*trusted.frozen, *covers.git_files):
        _pin(covers, os.path.dirname(path), visible)
    for path in further_names(covers.frozen, covers.directories):
        covers.frozen[path] = None
    if repositories is not None:
        if not keep_settings:
            trusted.configs = {one: state for one, state in trusted.configs.items() if not one.endswith("/.git/config")}
        baseline = partial(_baseline, covers, found, trusted, protected)
        repositories.trust(baseline, covers.directories, found, trusted.hooked)


def _baseline(
    covers: Covers, found: Sequence[str], trusted: TrustedGit, protected: dict[str, None], root: str
) -> Baseline:
    """What is there in the tree `root`."""
    made = Baseline(root)
    inside = [root]
    made.repositories = {one: identity(one) for one in found if beneath(one, inside)}
    made.links = _links_in(made.repositories, covers.links)
    made.git_files = {one: None for one in covers.git_files if beneath(one, inside)}
    made.protected = {one: None for one in protected if beneath(one, inside)}
    made.trusted.absent = {one: None for one in trusted.absent if beneath(one, inside)}
    made.trusted.links = {one: target for one, target in trusted.links.items() if beneath(one, inside)}
    made.trusted.configs = {one: state for one, state in trusted.configs.items() if beneath(one, inside)}
    made.trusted.commands, made.trusted.settings = trusted.commands, trusted.settings
    return made


def _sourced(entered: Sequence[str]) -> list[str]:
    """What files name that a shell runs when it enters a directory. Most projects have none."""
    if not entered:
        return []
    from sandbox.guards.entry_scripts import named_by

    return [named for path in entered for named in named_by(path)]


def _links_in(repositories: Mapping[str, str], links: Sequence[str]) -> dict[str, str]:
    """Those of `links` that are in a repository, with their targets."""
    if not repositories:
        return {}
    found = {}
    for link in links:
        above = link
        while (above := os.path.dirname(above)) not in repositories and above != "/":
            pass
        if above != "/":
            try:
                found[link] = os.readlink(link)
            except OSError:
                pass  # gone since
    return found


def _pin(covers: Covers, directory: str, visible: Sequence[str]) -> None:
    """Keeps a directory and all its parents from being renamed: a tenant could put another in its place."""
    while directory not in visible and beneath(directory, visible):
        covers.pinned[directory] = None
        directory = os.path.dirname(directory)


def further_names(frozen: Iterable[str], directories: Iterable[str]) -> list[str]:
    """Hard links to frozen files, outside frozen directories: a tenant could change the file through any of them."""
    wanted: set[tuple[int, int]] = set()
    whole = list(frozen)
    for path in _files(whole):
        info = os.lstat(path)
        if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
            wanted.add((info.st_dev, info.st_ino))
    if not wanted:
        return []
    numbers = {number for _, number in wanted}
    found = []
    for directory in directories:
        if beneath(directory, whole):
            continue
        try:
            with os.scandir(directory) as entries:
                candidates = [one.path for one in entries if one.inode() in numbers]
            for path in candidates:
                info = os.lstat(path)
                if stat.S_ISREG(info.st_mode) and (info.st_dev, info.st_ino) in wanted:
                    found.append(path)
        except OSError:
            continue  # gone since
    return found


def _files(frozen: Iterable[str]) -> Iterable[str]:
    for path in list(frozen):
        if os.path.islink(path) or not os.path.isdir(path):
            if os.path.lexists(path):
                yield path
            continue
        for directory, _, names in os.walk(path):
            yield from (one for name in names if os.path.lexists(one := f"{directory}/{name}"))


def _make_hooks(repositories: Iterable[str]) -> None:
    """Makes an empty `hooks` where a repository has none: otherwise a tenant could make it, with hooks in it."""
    for repository in repositories:
        if os.path.lexists(f"{repository}/hooks") or common_directory(repository) != repository:
            continue
        try:
            from sandbox.guards.nofollow import open_in_place

            place = open_in_place(repository)
        except OSError:
            continue  # it has gone, or is another user's
        try:
            os.mkdir("hooks", 0o755, dir_fd=place)
            if os.geteuid() == 0:
                owner = os.stat(place)
                os.chown("hooks", owner.st_uid, owner.st_gid, dir_fd=place, follow_symlinks=False)
        except OSError:
            continue  # then no tenant can make it either
        finally:
            os.close(place)
