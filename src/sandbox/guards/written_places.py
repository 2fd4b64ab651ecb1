"""The directories of the host that tenants could write to, in this run or in any earlier one.

Whatever is there may be theirs, so no program found there is run outside the walls. Each directory is noted as a
symbolic link in `~/.sandbox/written`, named by its device and inode numbers, so that it is known even if it was moved.
"""

from __future__ import annotations

import os

from sandbox.config.home import home, unwritable
from sandbox.config.paths import is_beneath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def note(tree: str, link: str) -> None:
    """Writes down, as `link`, that tenants write into `tree`. Raises SandboxError.

    Does nothing for a directory that contains the person's home: most of it is hidden from tenants, and every program
    in it would be refused."""
    if is_beneath(os.path.realpath(os.path.expanduser("~")), tree):
        return
    try:
        os.makedirs(os.path.dirname(link), 0o700, exist_ok=True)
        os.symlink(tree, link)
    except FileExistsError:
        pass  # by another sandbox, since we looked
    except OSError as problem:
        raise unwritable(problem) from problem


def written(path: str) -> bool:
    """Whether `path`, a real path, lies in one of them."""
    return tree_of(path) is not None


def tree_of(path: str) -> str | None:
    """The nearest of them that `path`, a real path, lies in, where it is now."""
    noted = list(_noted())
    while noted:
        try:
            number = os.stat(path).st_ino
        except OSError:
            number = -1
        for tree, inode in noted:
            if path == tree or (number == inode and not _is(tree, inode)):
                return path  # it is there, or was moved since; if not, this directory only has the same inode number
        if path == "/":
            break
        path = os.path.dirname(path)
    return None


def first_written() -> list[tuple[str, int]]:
    """Each of them as a prefix of paths, and since when tenants write there, in nanoseconds."""
    place = f"{home()}/written"
    found = []
    for name in os.listdir(place) if os.path.isdir(place) else ():
        link = f"{place}/{name}"
        found.append((f"{os.readlink(link).rstrip('/')}/", os.lstat(link).st_mtime_ns))
    return found


def _noted() -> Iterator[tuple[str, int]]:
    place = f"{home()}/written"
    try:
        names = os.listdir(place)
    except FileNotFoundError:
        return
    for name in names:
        yield os.readlink(f"{place}/{name}"), int(name.partition("-")[2], 16)


def _is(path: str, inode: int) -> bool:
    try:
        return os.stat(path).st_ino == inode
    except OSError:
        return False
