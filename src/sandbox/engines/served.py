"""The rules about a directory of the host that is served, not mounted: by name, and by what each file is."""

from __future__ import annotations

import os

from sandbox.config.home import record_directory
from sandbox.engines.looking import Looker, secret_files
from sandbox.guards.views import Views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Config


class Served:
    """What the walls would cover and freeze in `directory`, for whoever answers for its files. See vfs' `Guard`."""

    def __init__(self, config: Config, directory: str) -> None:
        """Raises SandboxError."""
        self._directory = os.path.realpath(directory)
        own = [os.path.realpath(record_directory(config))]
        self._looker = Looker(config.filesystem, Views([(self._directory, "/")]), own, secret_files(config))
        self._files: set[tuple[int, int]] = set()
        self._still: set[str] = set()
        self.moved()

    def moved(self) -> None:
        self._search = self._looker.look()
        found = self._search.found
        for path in found.masks:
            try:
                info = os.lstat(path)
            except OSError:
                continue  # gone since
            self._files.add((info.st_dev, info.st_ino))
        cut = len(self._directory.rstrip("/"))
        self._still.update(path[cut:] for path in (*found.pinned, *found.frozen))

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
        return any(self._search.pattern_for(step, True) is not None for step in steps)

    def frozen(self, path: str) -> bool:
        if path in self._still:
            return True
        parts = path.strip("/").split("/")
        if not any(self._search.could_match(part) for part in parts):
            return False
        return any(self._search.protected.match("/".join(parts[: end + 1]), True) for end in range(len(parts)))
