"""The content of projects' files on a node, by digest, and the directories that are made of it."""

from __future__ import annotations

import hashlib
import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from sandbox.cluster.manifest import ManifestEntry
from sandbox.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST = 20 * 2**30  # bytes of content that stay for later projects
RECENT = 3600.0  # seconds for which content that was used is not removed, whatever its size
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class BlobStore:
    """A store below the agent's home. Content is checked against its digest, which is its name, before it is kept."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        os.makedirs(directory, mode=0o700, exist_ok=True)

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Those of `digests` that are not in the store. The others count as used now. Raises InvalidArgument."""
        return [one for one in dict.fromkeys(digests) if not self._use(one)]

    def add(self, digest: str, content: bytes) -> None:
        """Keeps the content of a file. Raises InvalidArgument when it does not have that digest."""
        if hashlib.sha256(content).hexdigest() != digest:
            raise InvalidArgument("the content is not that of its digest")
        beside = f"{self._path(digest)}.{os.urandom(8).hex()}"
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(content)
        os.rename(beside, self._path(digest))

    def trim(self, most: int = MOST) -> None:
        """Removes what was not used for the longest time, until at most `most` bytes are left."""
        found = []
        with os.scandir(self._directory) as listed:
            for one in listed:
                with suppress(FileNotFoundError):
                    about = one.stat(follow_symlinks=False)
                    found.append((about.st_mtime, about.st_size, one.path))
        size = sum(one[1] for one in found)
        for used, bytes, path in sorted(found):
            if size <= most or used > time.time() - RECENT:
                return
            with suppress(FileNotFoundError):
                os.unlink(path)
            size -= bytes

    def build(self, root: str, entries: Sequence[ManifestEntry]) -> None:
        """Makes a project of stored content in the empty directory `root`. Raises InvalidArgument, NotFound."""
        links = {one.path for one in entries if one.kind == "symlink"}
        for one in entries:
            _check(one, links)
        for one in (one for one in entries if one.kind == "directory"):
            os.makedirs(f"{root}/{one.path}", mode=0o700, exist_ok=True)
        for one in (one for one in entries if one.kind == "file"):
            self._copy(one, f"{root}/{one.path}")
        for one in (one for one in entries if one.kind == "symlink"):
            os.symlink(one.target, f"{root}/{one.path}")
        for one in reversed([one for one in entries if one.kind == "directory"]):
            os.chmod(f"{root}/{one.path}", one.mode & 0o777 | 0o700)

    def _use(self, digest: str) -> bool:
        try:
            os.utime(self._path(digest))
        except FileNotFoundError:
            return False
        return True

    def _copy(self, entry: ManifestEntry, target: str) -> None:
        import shutil

        try:
            shutil.copyfile(self._path(entry.digest), target, follow_symlinks=False)
        except FileNotFoundError:
            raise NotFound("no content with the digest {digest}", digest=entry.digest) from None
        os.chmod(target, entry.mode & 0o777 | 0o400)

    def _path(self, digest: str) -> str:
        if not _DIGEST.match(digest):
            raise InvalidArgument("{digest!r} is not a digest", digest=digest)
        return f"{self._directory}/{digest}"


def _check(entry: ManifestEntry, links: set[str]) -> None:
    """Makes sure that nothing is written outside the project: no `..`, no link in the path. Raises InvalidArgument."""
    parts = entry.path.split("/")
    if not entry.path or "\0" in entry.path or any(one in ("", ".", "..") for one in parts):
        raise InvalidArgument("{path!r} is not a path in a project", path=entry.path)
    if any("/".join(parts[:count]) in links for count in range(1, len(parts))):
        raise InvalidArgument("{path!r} lies behind a link", path=entry.path)
