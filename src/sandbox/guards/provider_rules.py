"""The file rules for a host directory that a VFS provider serves, where no mount can cover or freeze anything."""

from __future__ import annotations

import os

from sandbox.config.home import record_directory
from sandbox.guards.freezing import freeze_repositories
from sandbox.guards.scan import Scanner, secret_files
from sandbox.guards.views import Views
from sandbox.policy.protected import protected_patterns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Config
    from sandbox.guards.covers import Covers
    from sandbox.guards.repositories import Repositories


class ProviderRules:
    """Answers what would be covered or frozen in `directory` if it were mounted. Implements vfs' `Guard`."""

    def __init__(self, config: Config, directory: str, repositories: Repositories) -> None:
        """Notes in `repositories` what the host's git trusts there; it is checked at the end. Raises SandboxError."""
        self.repositories = repositories
        self._changed = False
        self._directory = os.path.realpath(directory)
        own = [os.path.realpath(record_directory(config))]
        self._looker = Scanner(config.filesystem, Views([(self._directory, "/")]), own, secret_files(config))
        self._files: set[tuple[int, int]] = set()
        self._pinned: set[str] = set()
        self._frozen: set[str] = set()
        self.moved()
        found = self._search.found
        freeze_repositories(found, [self._directory], repositories, dict(found.frozen))
        self._note(found)

    def moved(self) -> None:
        self._search = self._looker.look()
        found = self._search.found
        for path in found.masks:
            try:
                info = os.lstat(path)
            except OSError:
                continue  # gone since
            self._files.add((info.st_dev, info.st_ino))
        self._note(found)

    def _note(self, found: Covers) -> None:
        cut = len(self._directory.rstrip("/"))
        self._pinned.update(path[cut:] for path in found.pinned)
        self._frozen.update(path[cut:] for path in found.frozen)

    def blocked(self, path: str, info: os.stat_result) -> bool:
        if (info.st_dev, info.st_ino) in self._files:
            return True
        if self.closed(path):
            self._files.add((info.st_dev, info.st_ino))
            return True
        return False

    def closed(self, path: str) -> bool:
        parts = path.strip("/").split("/")
        if not any(self._search.could_match(part) for part in parts):
            return False
        steps = ("/".join(parts[: end + 1]) for end in range(len(parts)))
        return any(
            self._search.pattern_for(step, True) or self._search.by_another_way(f"{self._directory}/{step}", True)
            for step in steps
        )

    def frozen(self, path: str) -> bool:
        """Whether `path` was protected at the start. What is new is checked when the sandbox has ended."""
        if path in self._pinned:
            return True
        above = path
        while above not in ("", "/"):
            if above in self._frozen:
                return True
            above = os.path.dirname(above)
        self._changed = True
        return False

    def finish(self) -> None:
        """Checks what the host's git would run now, if a tenant changed anything."""
        if self._changed:
            self.repositories.finish(protected_patterns())
        else:
            self.repositories.abandon()
