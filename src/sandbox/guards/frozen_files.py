"""What is frozen in a sandbox, and what of it somebody on the host has replaced since.

A frozen path is a read-only mount on a name. A program on the host that saves by renaming (`git config`, `git push -u`,
editors) or that removes the file and makes it again (`git checkout`) takes that mount away, because a mount inside
cannot stop anybody outside. Then the name is frozen again, as soon as it appears, and reported at the end: a tenant may
have written to it in between.
"""

from __future__ import annotations

from sandbox.guards.git_directories import beneath, is_another, state_of
from sandbox.guards.git_marker import moved_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sandbox.guards.appearances import Appeared


class FrozenFiles:
    """The frozen paths of the host in the trees that tenants write to, as they were before any tenant ran."""

    def __init__(self, frozen: Iterable[str], trees: Sequence[str]) -> None:
        self._states = {path: state_of(path) for path in frozen if beneath(path, trees)}

    def among(self, appeared: Iterable[Appeared]) -> set[str]:
        """Those that may have no mount any more because something new is there, or may be."""
        again: set[str] = set()
        for path, is_dir in appeared:
            if path is None:
                return set(self._states)
            if is_dir:
                again.update(one for one in self._states if beneath(one, [path]))
            elif path in self._states:
                again.add(path)
        return again

    def follow(self, old: str, new: str) -> None:
        """Looks for everything where it is now: `old`, a directory, has been renamed to `new`."""
        self._states = {moved_path(old, new, path): state for path, state in self._states.items()}

    def replaced(self) -> list[str]:
        """Those that are not what they were."""
        return [path for path, state in self._states.items() if is_another(path, state)]
