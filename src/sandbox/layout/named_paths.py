"""Remembers which of the host's files the path lists name, to find out later whether they name others.

A sandbox decides at its start what `deny_read: [**/.env]` means. If it is kept for many commands, it does not hide a
file that was made since. So its owner asks here before each command, and starts another sandbox if necessary.
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
    """What the lists name at this moment. Create it before the sandbox is built, so that later changes are noticed."""

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
                    continue  # it only keeps tenants from making a file of this name
                found.add((path, os.path.realpath(path), info.st_dev, info.st_ino))
        return found
