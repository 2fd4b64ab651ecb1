"""The repository's directory, if it is outside the project: the project may be a further work tree, a submodule, or a
directory in a repository. It is shown read-only, so that git works inside, and only if the repository itself knows the
project: a `.git` file alone could name any repository of the person."""

from __future__ import annotations

import os

from sandbox.guards.git_directories import beneath, common_directory, first_line, is_repository, read_config


def outside_repository(root: str, home: str) -> list[str]:
    """The directories to show for the project at `root`; none for most projects, whose repository is inside."""
    place = f"{root}/.git"
    if os.path.isfile(place) and not os.path.islink(place):
        found = _named_by(place, root)
    elif os.path.lexists(place):
        return []
    else:
        found = _above(root, home)
    if found is None or not is_repository(found) or os.stat(found).st_uid != os.stat(root).st_uid:
        return []
    common = os.path.realpath(common_directory(found))
    if beneath(common, [root]) or _has_credentials(common):
        return []
    shown = [common] if beneath(found, [common]) else [common, found]
    return [] if any(beneath(root, [one]) for one in shown) else shown


def _named_by(file: str, root: str) -> str | None:
    said = first_line(file)
    if not said.startswith("gitdir:"):
        return None
    found = os.path.realpath(os.path.join(root, said[7:].strip()))
    if beneath(found, [root]):
        return None
    back = first_line(f"{found}/gitdir")  # of a further work tree
    trees = [os.path.dirname(os.path.join(found, back))] if back else []
    entries = [one for one in read_config(f"{found}/config") or () if one[0] == "core.worktree"]
    from sandbox.guards.git_examination import work_trees  # most projects have their repository inside

    trees += work_trees(found, entries)[1:]
    return found if any(os.path.realpath(one) == root for one in trees) else None


def _above(root: str, home: str) -> str | None:
    """The repository whose work tree contains the project, but never one that contains the home directory: that holds
    more than a project."""
    directory = root
    while (directory := os.path.dirname(directory)) != "/" and not beneath(home, [directory]):
        place = f"{directory}/.git"
        if os.path.isdir(place) and not os.path.islink(place):
            return place
        if os.path.lexists(place):
            return None
    return None


def _has_credentials(repository: str) -> bool:
    """Whether its configuration holds credentials of the person."""
    for name, value in read_config(f"{repository}/config") or ():
        if name.startswith(("http.", "credential.")) or (value and "://" in value and "@" in value.split("://")[1]):
            user = (value or "").partition("://")[2].partition("@")[0]
            if not (value or "").startswith("ssh://") or ":" in user:
                return True
    return False
