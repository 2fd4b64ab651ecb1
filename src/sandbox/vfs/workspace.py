"""An overlay project: a sandbox's changes, until they are applied or discarded.

`<home>/vms/<id>/overlay/` holds the kernel's `upper` and `work` and a small `overlay.json`. The host's files are never
touched while the sandbox runs, unless somebody calls `apply`.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandbox.config.atomic_write import write_whole
from sandbox.config.rmtree import remove_tree
from sandbox.errors import NotFound, SandboxError
from sandbox.guards.git_apply import is_object, makes_a_repository, risky
from sandbox.vfs.apply_choice import Choice, at_or_below
from sandbox.vfs.apply_journal import Journal, clear
from sandbox.vfs.change_groups import group_changes
from sandbox.vfs.changes import Change, LayerChanges, UnreadableFiles, walk
from sandbox.vfs.file_state import UNSEEN, FileState, below, state_of
from sandbox.vfs.provider import split
from sandbox.vfs.workspace_layers import is_at, open_layers, open_sides, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from sandbox.vfs.apply_steps import Step

CHANGED = "the file was changed on the host since the sandbox started"


@dataclass(slots=True)
class Applied:
    """What `apply` did. Each refusal has the path and the reason."""

    applied: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)


class Workspace:
    """The changes of one sandbox, living or `ended`."""

    def __init__(self, directory: str, root: str, started_ns: int, known: dict[str, int], *, ended: bool) -> None:
        self._discarded: dict[str, list[int]] = {}  # path in hex -> identity of what was there when it was discarded
        self.directory = directory
        self.root = root
        self._place: list[int] = []  # which directory that is
        self._started_ns = started_ns
        # Our own changes are not conflicts: inode in the project -> ctime.
        self._known = known
        self._ended = ended

    @classmethod
    def begin(cls, home: str, identity: str, root: str, earlier: Mapping[str, Any] | None = None) -> Workspace:
        """Creates the directory for a new sandbox's changes, which no other user can read.

        `earlier`: what is known about the changes that it starts with (`started_ns`, `known`).
        """
        directory = os.path.join(home, "vms", identity, "overlay")
        os.makedirs(os.path.dirname(directory), 0o700, exist_ok=True)
        os.mkdir(directory, 0o700)
        # The file system's own clock, so that it can be compared with file times.
        earlier = earlier or {}
        began = earlier.get("started_ns", os.stat(directory).st_ctime_ns)
        made = cls(directory, root, began, dict(earlier.get("known", {})), ended=False)
        made._place = place_of(root)
        made._save()
        return made

    @classmethod
    def find(cls, home: str, identity: str, *, ended: bool = False) -> Workspace:
        """The changes of that sandbox. Raises NotFound when it has none."""
        directory = os.path.join(home, "vms", identity, "overlay")
        try:
            with open(os.path.join(directory, "overlay.json"), encoding="utf-8") as file:
                kept = json.load(file)
        except FileNotFoundError:
            raise NotFound(
                "{identity} has no changes: it was not run with --overlay, or they were deleted", identity=identity
            ) from None
        root = os.fsdecode(bytes.fromhex(kept["root"]))
        found = cls(directory, root, kept["started_ns"], kept.get("known", {}), ended=ended)
        found._place = kept.get("place", [])
        return found

    @property
    def started_ns(self) -> int:
        """When the sandbox started, by the file system's clock."""
        return self._started_ns

    def changes(self) -> list[Change]:
        """What differs from the host's files as they are now."""
        with self._lock(), open_layers(self.root, self.directory, self._place) as (upper, project):
            self._recover(project)
            if upper is None:
                return []
            layer = self._look(upper, project)
            group_changes(layer, upper, project)
        return [change for change in layer.changes if not change.discarded]

    def apply(
        self, paths: Sequence[str] | None = None, *, overwrite: bool = False, reviewed: str | None = None
    ) -> Applied:
        """Applies changes: all, or those at or below `paths` (relative to the project, or absolute in it).

        Changes that belong together (both ends of a rename, hard links of one file) are all applied or none, and
        nothing is deleted unless what may replace it was written. Refused: what the host changed meanwhile (unless
        `overwrite`), what the host would run or obey, or leads out of the project (unless it is named itself), and what
        is no file, directory or link. Raises SandboxError if the changes have another `digest` than `reviewed`.
        """
        named = None if paths is None else [self._relative(path) for path in paths]
        with self._lock(), open_layers(self.root, self.directory, self._place) as (upper, project):
            self._recover(project)
            layer = self._look(upper, project) if upper is not None else LayerChanges()
            _refuse_others(layer, reviewed)
            done = Applied()
            for name in named or ():
                if not any(at_or_below(change.path, name) for change in layer.changes):
                    done.refused.append((name, "nothing changed there"))
            if upper is not None and layer.changes:
                self._carry(upper, project, layer, Choice(named, overwrite), done)
        return done

    def _carry(self, upper: int, project: int, layer: LayerChanges, choice: Choice, done: Applied) -> None:
        from sandbox.vfs.apply import Application, Sides

        sets = group_changes(layer, upper, project)
        choice.choose(layer.changes, sets)
        failed: dict[int, str] = {}
        if choice.chosen:
            sides = Sides(upper, project, self._is_clean, choice.covers)
            journal = Journal.begin(self.directory)
            try:
                failed = Application(sides, layer, choice.chosen, sets, journal).run()
            finally:
                self._recover(project, journal)
        for index, change in enumerate(layer.changes):
            reason = choice.refused.get(index) or failed.get(index)
            if reason is not None and not change.discarded:
                done.refused.append((change.path, reason))
            elif index in choice.taken and change.path not in done.applied[-1:]:
                done.applied.append(change.path)

    def discard(self, paths: Sequence[str] | None = None) -> None:
        """Discards the changes: all, for which the sandbox must have ended, or those at or below `paths`.

        What was discarded is neither shown nor applied; what a tenant changes again afterwards is a new change. Raises
        NotFound for a path where nothing changed.
        """
        if paths is not None:
            self._discard_some([self._relative(path) for path in paths])
            return
        self.recover()
        remove_tree(self.directory)

    def _discard_some(self, named: Sequence[str]) -> None:
        """The layer itself stays as it is: taking one end of a rename out of it would lose the other."""
        with self._lock(), open_layers(self.root, self.directory, self._place) as (upper, project):
            self._recover(project)
            changes = self._look(upper, project).changes if upper is not None else []
            for name in named:
                chosen = [change for change in changes if at_or_below(change.path, name)]
                if not chosen:
                    raise NotFound("nothing changed at {path}", path=name)
                self._discarded.update((_key(change), _identity(change)) for change in chosen)
            self._save()

    def recover(self) -> None:
        """Repairs what an interrupted `apply` has left in the project."""
        if not os.path.exists(os.path.join(self.directory, "journal.json")):
            return
        with self._lock():
            try:
                project = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                return  # the project no longer exists
            try:
                if is_at(self._place, project):
                    self._recover(project)
            finally:
                os.close(project)

    def _recover(self, project: int, journal: Journal | None = None) -> None:
        journal = journal or Journal.find(self.directory)
        if journal is None:
            return
        clear(journal, project)
        # The journal is removed last: until then the next call repeats this.
        self._remember(project, journal.steps, journal.touched)
        self._save()
        journal.end()

    def _remember(self, project: int, steps: Sequence[Step], touched: Sequence[str]) -> None:
        """Remembers the ctimes that we changed ourselves: of what we put there, and of what we moved and moved back."""
        for step in steps:
            now = state_of(project, step.path) if step.kind in ("put", "delete", "mode", "name") else None
            if now is None or now.kind == "directory":
                continue
            mark = now.identity[0], now.modified_ns, now.size
            if mark == step.new or (mark == step.before and step.clean):
                self._known[str(now.identity[0])] = now.identity[1]
        for place in touched:
            now = state_of(project, place)
            if now is not None and now.kind == "directory":
                self._known[str(now.identity[0])] = now.identity[1]

    @contextmanager
    def open(self, change: Change) -> Iterator[tuple[int | None, int | None]]:
        """The host's and the sandbox's content of a file that changed, open for reading; None where there is none."""
        with (
            open_layers(self.root, self.directory, self._place) as (upper, project),
            open_sides(upper, project, change) as sides,
        ):
            yield sides

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Excludes other threads and processes, and reads what they have saved meanwhile."""
        fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            with open(os.path.join(self.directory, "overlay.json"), encoding="utf-8") as file:
                kept = json.load(file)
            self._known, self._discarded = kept.get("known", {}), kept.get("discarded", {})
            yield
        finally:
            os.close(fd)

    # -- comparing

    def _look(self, upper: int, project: int) -> LayerChanges:
        layer = _walked(upper, project, self._closed())
        # What `git gc` inside found unused may be a commit of a branch that the host has made since.
        layer.changes = [
            change for change in layer.changes if change.kind != "deleted" or not is_object(self.root, change.path)
        ]
        if os.path.exists(os.path.join(self.directory, "branch.json")):
            # Commits are brought over by objects and ref (docs/branches.md): HEAD and index inside are not the host's.
            layer.changes = [change for change in layer.changes if not at_or_below(change.path, ".git")]
        would_run = risky(os.path.join(self.directory, "upper"), self.root, [change.path for change in layer.changes])
        for change in layer.changes:
            change.discarded = self._discarded.get(_key(change)) == _identity(change)
            if change.risk is None and change.path in would_run:
                change.risk = "git on the host would run or obey it"
            if change.risk is None and _is_taken_away(change) and makes_a_repository(self.root, change.path):
                change.risk = "without it, a repository of yours with all its branches would be lost"
            if change.conflict is None:
                change.conflict = _conflict(project, change, self._is_clean)
        _find_removed(layer, upper, project, self._is_clean)
        return layer

    def _closed(self) -> UnreadableFiles:
        """What a tenant made unreadable. The file `modes` keeps its mode before we changed it, one line each."""
        file = os.path.join(self.directory, "modes")
        modes: dict[str, int] = {}
        if os.path.exists(file):
            with open(file, encoding="ascii") as kept:
                for line in kept:
                    mode, _, path = line.strip().partition(" ")
                    modes[os.fsdecode(bytes.fromhex(path))] = int(mode, 8)

        def note(path: str, mode: int) -> None:
            with open(file, "a", encoding="ascii") as kept:
                kept.write(f"{mode:o} {os.fsencode(path).hex()}\n")

        return UnreadableFiles(modes, note if self._ended else None)

    def _is_clean(self, found: FileState) -> bool:
        """Whether nobody but us has changed it since the sandbox started."""
        inode, changed_ns = found.identity
        return changed_ns <= self._started_ns or self._known.get(str(inode)) == changed_ns

    def _relative(self, path: str) -> str:
        path = os.path.normpath(path)
        if os.path.isabs(path):
            path = os.path.relpath(path, self.root)
        if path == ".." or path.startswith("../"):
            raise SandboxError("{path} is not in the project {root}", path=path, root=self.root)
        return "" if path == "." else path

    def _save(self) -> None:
        kept = {
            "root": os.fsencode(self.root).hex(),
            "place": self._place,
            "started_ns": self._started_ns,
            "known": self._known,
            "discarded": self._discarded,
        }
        write_whole(os.path.join(self.directory, "overlay.json"), json.dumps(kept))


def _walked(upper: int, project: int, closed: UnreadableFiles) -> LayerChanges:
    try:
        return walk(upper, project, closed)
    except FileNotFoundError as problem:  # only a tenant that runs can remove anything there
        raise SandboxError("the sandbox is running, and its files change while they are compared") from problem


def _refuse_others(layer: LayerChanges, reviewed: str | None) -> None:
    if reviewed is not None and digest([one for one in layer.changes if not one.discarded]) != reviewed:
        raise SandboxError("nothing was applied: the changes are different now; review them and try again")


def digest(changes: Sequence[Change]) -> str:
    """Identifies the changes as they are now. The same digest means that both sides of each are untouched."""
    import hashlib

    def side(state: FileState | None) -> object:
        return state and (state.kind, state.mode, state.size, state.identity)

    told = [(os.fsencode(one.path), one.kind, side(one.before), side(one.after)) for one in changes]
    told.sort(key=lambda one: one[:2])
    return hashlib.sha256(repr(told).encode()).hexdigest()


def _is_taken_away(change: Change) -> bool:
    """Whether what the host has there would be gone, or replaced by something of another kind."""
    return change.before is not None and (change.after is None or change.after.kind != change.before.kind)


def _key(change: Change) -> str:
    return os.fsencode(change.path).hex()


def _identity(change: Change) -> list[int]:
    """Identifies the change as it is now. A deletion has nothing that could change later."""
    return [] if change.after is None else list(change.after.identity)


def _conflict(project: int, change: Change, is_clean: Callable[[FileState], bool]) -> str | None:
    before = change.before
    if before is None or before.kind in UNSEEN:
        return None
    if before.kind != "directory":
        return None if is_clean(before) else CHANGED
    if change.kind != "deleted":
        return None
    for place, found in below(project, "/" + change.path):
        if found.kind in UNSEEN:
            return f"{place[1:]} {UNSEEN[found.kind]}"
        if found.kind != "directory" and not is_clean(found):
            return f"{place[1:]} was changed on the host since the sandbox started"
    return None


def _find_removed(layer: LayerChanges, upper: int, project: int, is_clean: Callable[[FileState], bool]) -> None:
    """Finds the files that the host has removed meanwhile. A file that came from the host and is no longer there was
    either removed there or moved inside. If the host's directory is unchanged, it was moved."""
    came = [one for one in layer.changes if one.from_host and one.kind == "added" and not one.impossible]
    doubtful = []
    for change in came:
        if change.path in layer.moved_in:
            continue
        around = state_of(project, split("/" + change.path)[0])
        if around is None or around.kind != "directory" or not is_clean(around):
            doubtful.append(change)
    if doubtful:
        group_changes(layer, upper, project)
        for change in doubtful:
            if change.source is None:
                change.conflict = "the file was removed on the host"
