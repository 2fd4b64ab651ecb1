"""An overlay project: where a sandbox's changes are kept, until they are carried over or thrown away.

`<home>/vms/<id>/overlay/` holds the kernel's `upper` and `work` and a small `overlay.json`. The host's files are never
touched while the sandbox runs, unless somebody calls `apply`.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandbox.config.trees import remove_tree
from sandbox.config.whole import write_whole
from sandbox.errors import NotFound, SandboxError
from sandbox.guards.git_apply import risky
from sandbox.vfs.beneath import parent_of
from sandbox.vfs.carry import (
    MovedOn,
    check_unmoved,
    make_directory,
    make_parents,
    put_file,
    put_link,
    remove,
    set_mode,
    tree,
)
from sandbox.vfs.changes import Change, changes, open_regular, state_of
from sandbox.vfs.provider import split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHANGED = "the file was changed on the host since the sandbox started"


@dataclass(slots=True)
class Applied:
    """What `apply` did. Each refusal has the path and the reason."""

    applied: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)


class Workspace:
    """The changes of one sandbox, living or ended."""

    def __init__(self, directory: str, root: str, started_ns: int, applied: dict[str, list[int]]) -> None:
        self.directory = directory
        self.root = root
        self._started_ns = started_ns
        # What we put there ourselves is not somebody else's change: path -> inode and time of change.
        self._applied = applied

    @classmethod
    def begin(cls, home: str, identity: str, root: str) -> Workspace:
        """Makes the place for a new sandbox's changes; nobody else can look into it."""
        directory = os.path.join(home, "vms", identity, "overlay")
        os.makedirs(os.path.dirname(directory), 0o700, exist_ok=True)
        os.mkdir(directory, 0o700)
        # The file system's own clock: what it stamps on a change can be compared with it.
        made = cls(directory, root, os.stat(directory).st_ctime_ns, {})
        made._save()
        return made

    @classmethod
    def find(cls, home: str, identity: str) -> Workspace:
        """The changes of that sandbox. Raises NotFound when it has none."""
        directory = os.path.join(home, "vms", identity, "overlay")
        try:
            with open(os.path.join(directory, "overlay.json"), encoding="utf-8") as file:
                kept = json.load(file)
            return cls(directory, os.fsdecode(bytes.fromhex(kept["root"])), kept["started_ns"], kept["applied"])
        except FileNotFoundError:
            raise NotFound(f"{identity} keeps no changes: not run with --overlay, or dropped since") from None

    def changes(self) -> list[Change]:
        """What differs from the host's files as they are now."""
        with self._layers() as (upper, project):
            found = list(changes(upper, project)) if upper is not None else []
        would_run = risky(os.path.join(self.directory, "upper"), self.root, [change.path for change in found])
        for change in found:
            if change.risk is None and change.path in would_run:
                change.risk = "git on the host would run or obey it"
            if change.conflict is None:
                change.conflict = self._conflict(change)
        return found

    def apply(self, paths: Sequence[str] | None = None, *, overwrite: bool = False) -> Applied:
        """Carries changes over: all, or those at or below `paths` (relative to the project, or absolute in it).

        Each file appears whole or not at all. Refused: what the host changed meanwhile (unless `overwrite`), what
        would make the host run or obey something, or leads out of the project (unless it is named itself), and what
        is no file, directory or link.
        """
        done = Applied()
        named = None if paths is None else [self._relative(path) for path in paths]
        found = self.changes()
        for name in named or ():
            if not any(_at_or_below(change.path, name) for change in found):
                done.refused.append((name, "nothing changed there"))
        with self._layers() as (upper, project):
            assert upper is not None or not found
            chosen = [one for one in found if named is None or any(_at_or_below(one.path, name) for name in named)]
            done.refused += [(one.path, why) for one in chosen if (why := _refusal(one, named or (), overwrite))]
            barred = [path for path, _ in done.refused]
            for change in chosen:
                # What was to take a file's place is refused: then the file stays, and all that was below it.
                if any(_at_or_below(change.path, path) for path in barred):
                    continue
                reason = self._carry(upper, project, change)  # type: ignore[arg-type]
                if reason is None:
                    done.applied.append(change.path)
                else:
                    done.refused.append((change.path, reason))
        self._save()
        return done

    def discard(self) -> None:
        """Throws the changes away. The sandbox must have ended."""
        remove_tree(self.directory)

    @contextmanager
    def open(self, change: Change) -> Iterator[tuple[int | None, int | None]]:
        """The host's and the sandbox's content of a file that changed, open for reading; None where there is none."""
        with self._layers() as (upper, project):
            sides = [(project, change.before), (upper, change.after)]
            fds: list[int | None] = []
            try:
                for root, side in sides:
                    is_file = root is not None and side is not None and side.kind == "file"
                    fds.append(open_regular(root, "/" + change.path) if is_file and root is not None else None)
                yield fds[0], fds[1]
            finally:
                for fd in fds:
                    if fd is not None:
                        os.close(fd)

    @contextmanager
    def _layers(self) -> Iterator[tuple[int | None, int]]:
        try:
            project = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as problem:
            raise SandboxError(f"the project {self.root} cannot be opened: {problem.strerror}") from problem
        try:
            upper = None
            try:
                upper = os.open(
                    os.path.join(self.directory, "upper"), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                )
            except FileNotFoundError:
                pass  # the sandbox never got as far
            try:
                yield upper, project
            finally:
                if upper is not None:
                    os.close(upper)
        finally:
            os.close(project)

    def _conflict(self, change: Change) -> str | None:
        before = change.before
        if before is None or before.kind == "directory":
            return None
        inode, changed_ns = before.identity
        if changed_ns <= self._started_ns or self._applied.get(change.path) == [inode, changed_ns]:
            return None
        return CHANGED

    def _relative(self, path: str) -> str:
        path = os.path.normpath(path)
        if os.path.isabs(path):
            path = os.path.relpath(path, self.root)
        if path == ".." or path.startswith("../"):
            raise SandboxError(f"{path} is not in the project {self.root}")
        return "" if path == "." else path

    def _carry(self, upper: int, project: int, change: Change) -> str | None:
        """Does one change; returns why not when it cannot."""
        path = "/" + change.path
        try:
            if change.kind == "deleted":
                return self._delete(project, path, change)
            assert change.after is not None
            if split(path)[0] != "/":
                make_parents(upper, project, split(path)[0])
            if change.kind == "mode":
                set_mode(project, path, change.after.mode)
            elif change.after.kind == "directory":
                make_directory(project, path, change.after.mode)
            elif change.after.kind == "link":
                put_link(project, path, change)
            else:
                put_file(upper, project, path, change)
        except MovedOn as problem:
            return str(problem)
        except OSError as problem:
            if problem.errno in (errno.ELOOP, errno.EXDEV):
                return "a link on the host stands in the way"
            return (problem.strerror or str(problem)).lower()
        now = state_of(project, path)
        if now is not None:
            self._applied[change.path] = list(now.identity)
        return None

    def _delete(self, project: int, path: str, change: Change) -> str | None:
        assert change.before is not None
        if change.before.kind != "directory":
            with parent_of(project, path) as (parent, name):
                check_unmoved(project, path, change.before)
                os.unlink(name, dir_fd=parent)
            return None
        newer = self._newer(project, path)
        if newer is not None:
            return f"{newer[1:]} was changed on the host since the sandbox started"
        remove(project, path)
        return None

    def _newer(self, project: int, path: str) -> str | None:
        """The first file below that the host changed since the start."""
        for place, state in tree(project, path):
            newer = state.kind != "directory" and state.identity[1] > self._started_ns
            if newer and self._applied.get(place[1:]) != list(state.identity):
                return place
        return None

    def _save(self) -> None:
        kept = {
            "root": os.fsencode(self.root).hex(),
            "started_ns": self._started_ns,
            "applied": self._applied,
        }
        write_whole(os.path.join(self.directory, "overlay.json"), json.dumps(kept))


def _refusal(change: Change, named: Sequence[str], overwrite: bool) -> str | None:
    if change.impossible:
        return change.impossible
    if change.risk and change.path not in named:
        return f"{change.risk}; name it to carry it over"
    if change.conflict and not overwrite:
        return change.conflict
    return None


def _at_or_below(path: str, place: str) -> bool:
    return not place or path == place or path.startswith(place + "/")
