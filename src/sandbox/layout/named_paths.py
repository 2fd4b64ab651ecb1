"""Which of the host's files the path lists name, to see later whether they would name others.

A sandbox decides at its start what `deny_read: [**/.env]` means. One that is kept for many commands would not hide a
file that was made since; whoever keeps it asks here before each command, and starts another one if need be.
"""

from __future__ import annotations

import os

from sandbox.guards.reserved_dirs import is_reserved
from sandbox.layout.paths import expanded, project_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Filesystem

    Named = set[tuple[str, str, int, int]]


class NamedPaths:
    """What the lists name at this moment. Make it before the sandbox is built: what changes meanwhile then counts."""

    def __init__(self, filesystem: Filesystem) -> None:
        """Raises ConfigError when the project does not exist."""
        self._root = project_root(filesystem)
        lists = ("deny_read", "deny_write", "allow_read", "allow_write")
        self._entries = {entry for name in lists for entry in getattr(filesystem, name)}
        self._then = self._look()

    def same(self) -> bool:
        """Whether they name the same files now: a file that was replaced, as editors save, is another one."""
        return self._look() == self._then

    def _look(self) -> Named:
        found: Named = set()
        for entry in self._entries:
            for path in expanded(self._root, entry, through_links=True):
                try:
                    info = os.stat(path)
                except OSError:
                    continue
                if is_reserved(info):
                    continue  # it stands for a file that is not there
                found.add((path, os.path.realpath(path), info.st_dev, info.st_ino))
        return found
