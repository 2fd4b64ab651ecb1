"""Commits that come from inside, judged as a server judges a push from a stranger.

The pack is indexed in a quarantine directory, where git checks every object (names such as `.git` in all their
spellings, hostile `.gitmodules`, broken links). Then the history must be complete and continue the branch. Only then
are the same bytes added to the repository, and the ref is set if it has not moved. Nothing else there changes.
"""

from __future__ import annotations

import os
import re
import tempfile

from sandbox.branches.git import reason
from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.branches.target import Target

NAME = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
NONE = "0" * 40


def is_commit_name(text: str) -> bool:
    """Whether it is the full name of an object, and nothing else."""
    return NAME.fullmatch(text) is not None


class Incoming:
    """A pack on its way to a branch."""

    def __init__(self, target: Target, tip: str, pack: str | None, *, force: bool = False) -> None:
        """`tip`: what the branch is inside; `pack`: a file with what the repository may lack, if anything."""
        if not is_commit_name(tip):
            raise SandboxError("what came from inside is not a commit")
        self._target = target
        self._git = target.git
        self._tip = tip
        self._pack = pack
        self._force = force

    def accept(self, identity: str, directory: str) -> int:
        """Brings the commits to the branch; returns how many are new on it. Raises SandboxError when they are
        refused; then the repository is as it was. `directory` is ours, for the quarantine."""
        target = self._target
        target.check()
        with tempfile.TemporaryDirectory(prefix="quarantine-", dir=directory) as place:
            seen = self._quarantine(place)
            old = target.tip()
            if self._git.ask("cat-file", "-t", self._tip, ok=(128,), environment=seen) != "commit":
                raise SandboxError("what came from inside is not a commit")
            # Fails unless everything that the commit leads to, and no branch has yet, is there and can be read.
            self._git.ask("rev-list", "--objects", "--quiet", self._tip, "--not", "--all", environment=seen)
            self._continues(old, seen)
            before = old or target.start
            count = self._git.ask("rev-list", "--count", f"{before}..{self._tip}", environment=seen)
        if old == self._tip or (old is None and self._tip == target.start):
            return 0
        if not self._force:
            target.check_protected()
        self._store()
        none = NONE if len(self._tip) == len(NONE) else "0" * 64
        self._git.ask("update-ref", "--no-deref", "-m", f"sandbox: {identity}", target.ref, self._tip, old or none)
        return int(count or 0)

    def _quarantine(self, place: str) -> dict[str, str]:
        """Indexes the pack apart from the repository; returns variables with which git sees both."""
        objects = os.path.join(place, "objects")
        os.makedirs(os.path.join(objects, "pack"), 0o700)
        seen = {
            "GIT_OBJECT_DIRECTORY": objects,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{self._target.common}/objects",
            "GIT_QUARANTINE_PATH": objects,  # git sets no ref while this is set
        }
        self._index(seen)
        return seen

    def _store(self) -> None:
        self._index({})

    def _index(self, environment: dict[str, str]) -> None:
        if self._pack is None:
            return
        with open(self._pack, "rb") as file:
            done = self._git.run("index-pack", "--strict", "--stdin", stdin=file, environment=environment)
        if done.returncode:
            raise SandboxError("git refuses what came from inside: {reason}", reason=reason(done.stderr))

    def _continues(self, old: str | None, seen: dict[str, str]) -> None:
        if self._force:
            return
        for before in filter(None, (self._target.start, old)):
            done = self._git.run("merge-base", "--is-ancestor", before, self._tip, environment=seen)
            if done.returncode:
                raise SandboxError(
                    "the commits from inside do not continue {name} as it is ({commit}); bring them over with --force, "
                    "or to another branch",
                    name=self._target.name,
                    commit=before[:12],
                )
