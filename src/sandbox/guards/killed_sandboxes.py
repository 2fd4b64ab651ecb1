"""Undoes what killed sandboxes left in projects that the host's git would run. Their markers say what was trusted."""

from __future__ import annotations

import os

from sandbox.guards.git_marker import Marker, all_markers, markers_of
from sandbox.guards.made_files import MOST, noting_made
from sandbox.guards.repository_check import RepositoryCheck
from sandbox.guards.written_trees import local_devices, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.guards.git_marker import Baseline
    from sandbox.guards.written_trees import Tell


def undo(left: Baseline, tell: Tell, made: Callable[[str], object]) -> None:
    """Checks a whole tree whose sandboxes were killed. Calls `made` with new files that programs on the host act on."""
    if not os.path.isdir(left.root):
        return
    from sandbox.policy.protected import protected_patterns

    local, count = local_devices(), 0

    def note(directory: str, path: str) -> None:
        nonlocal count
        info = os.lstat(directory)
        if (info.st_ctime_ns >= left.since or info.st_dev not in local) and count < MOST:
            count += 1
            made(path)

    found = noting_made(walk(left.root, tell), protected_patterns(), [left.root], [left], note, tell)
    RepositoryCheck([left.root], tell, [left], last=True).everything(found)


def repair(path: str, tell: Tell, made: Callable[[str], object], root: str | None = None) -> str | None:
    """Does that for one marker, unless a sandbox still runs in its tree. `root`: where the tree is now, if that is
    known. Returns the tree's path if it is there no more; then the marker stays."""
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
            undo(left, tell, made)
    marker.close(remove=True)
    return None


def repair_all(home: str, tell: Tell, made: Callable[[str], object]) -> list[str]:
    """The same for every marker. Returns the paths at which there are no trees any more."""
    gone = [repair(path, tell, made) for path in all_markers(home)]
    return [root for root in gone if root is not None]
