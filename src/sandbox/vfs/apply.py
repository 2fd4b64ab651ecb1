"""Applies chosen changes to the project: everything is staged first, then moved into place; deletions come last."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox.vfs.apply_journal import DONE, STAGING, SWITCHING
from sandbox.vfs.apply_staging import Mark, MovedOn, Stage, mark_of
from sandbox.vfs.apply_steps import Step, do, undo
from sandbox.vfs.change_groups import Groups
from sandbox.vfs.file_state import FileState, open_regular, state_of
from sandbox.vfs.open_beneath import parent_of
from sandbox.vfs.provider import split

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.vfs.apply_journal import Journal
    from sandbox.vfs.changes import Change, LayerChanges


@dataclass(slots=True)
class Sides:
    """The two trees, and what is known about the host's."""

    upper: int
    project: int
    is_clean: Callable[[FileState], bool]
    joins: Callable[[str], bool]
    """Whether an unchanged name of a file with several may be joined with the others."""


class Application:
    """One `apply` of `chosen` (indices of `layer.changes`), of which none is refused."""

    def __init__(self, sides: Sides, layer: LayerChanges, chosen: list[int], groups: Groups, journal: Journal) -> None:
        self._sides = sides
        self._layer = layer
        self._chosen = chosen
        self._journal = journal
        self._units = Groups(len(layer.changes))
        self._failed: dict[int, str] = {}  # by unit
        self._opens: dict[str, Step] = {}
        self._steps: list[Step] = []
        self._deletions: list[Step] = []
        self._seals: dict[str, Step] = {}
        self._new_directories: set[str] = set()
        self._slots = 0
        self._staged_links: dict[int, str] = {}
        self._changed = {change.path for change in layer.changes}
        self._host_names: dict[int, Step] = {}
        self._unit_by_path: dict[str, int] = {}
        first: dict[int, int] = {}
        for index in chosen:
            self._units.join(index, first.setdefault(groups.of(index), index))
        self._join_with_parents()

    def _join_with_parents(self) -> None:
        by_path: dict[str, int] = {}
        for index in self._chosen:
            path = self._layer.changes[index].path
            above = split("/" + path)[0][1:]
            if above in by_path and self._layer.changes[by_path[above]].kind == "added":
                self._units.join(index, by_path[above])
            by_path[path] = index

    def run(self) -> dict[int, str]:
        """Applies the changes. Returns the reason for each that could not be applied, by its index."""
        # The journal is written first, because staging already changes ctimes on the host.
        self._host_names = self._find_host_names()
        self._journal.steps = list(self._host_names.values())
        self._journal.touched = self._touched()
        self._journal.write(STAGING)
        stage = Stage.make(self._sides.project, self._journal.name)
        try:
            self._stage_all(stage)
            steps = [*self._opens.values(), *self._steps, *self._deletions, *reversed(self._seals.values())]
            self._journal.steps = [step for step in steps if self._units.of(step.unit) not in self._failed]
            self._journal.touched = sorted({*self._journal.touched, *self._touched()})
            if self._journal.steps:
                stage.sync()
                self._journal.write(SWITCHING)
                self._switch(stage)
            self._journal.write(DONE)
        finally:
            stage.close()
        return {index: self._failed[unit] for index in self._chosen if (unit := self._units.of(index)) in self._failed}

    # -- staging

    def _stage_all(self, stage: Stage) -> None:
        replaced = {self._layer.changes[index].path for index in self._chosen if self._layer.changes[index].after}
        befores = {
            self._layer.changes[index].path: self._layer.changes[index].before
            for index in self._chosen
            if self._layer.changes[index].kind == "deleted"
        }
        for index in self._chosen:
            change = self._layer.changes[index]
            unit = self._units.of(index)
            if unit in self._failed:
                continue
            try:
                if change.kind != "deleted":
                    before = change.before or befores.get(change.path)
                    self._stage(stage, index, change, before)
                elif change.path not in replaced:
                    assert change.before is not None
                    step = self._step("delete", index, "/" + change.path, change.before)
                    self._deletions.append(step)
            except MovedOn as problem:
                self._failed[unit] = str(problem)
            except OSError as problem:
                self._failed[unit] = _reason(problem)

    def _stage(self, stage: Stage, index: int, change: Change, before: FileState | None) -> None:
        after = change.after
        assert after is not None
        path = "/" + change.path
        if after.kind == "directory":
            if before is not None and before.kind == "directory":
                self._seals[path] = Step(
                    "seal", path, index, before=_mark(before), mode=after.mode, mode_before=before.mode
                )
            elif path not in self._new_directories:
                self._stage_directory(stage, index, path, after.mode, before)
            return
        self._stage_parents(stage, index, path)
        links = self._layer.links.get(after.identity[0], [])
        if change.kind == "mode" and before is not None and before.names == 1 and len(links) < 2:
            step = Step("mode", path, index, mode=after.mode, mode_before=before.mode, before=_mark(before))
            step.clean = self._sides.is_clean(before)
            self._steps.append(step)
            return
        step = self._step("put", index, path, before)
        if after.kind == "link":
            assert after.target is not None
            stage.add_link(step.slot, after.target)
        else:
            self._stage_file(stage, index, step, path, after, links)
        step.new = mark_of(stage.fd, step.slot)
        self._steps.append(step)

    def _stage_file(self, stage: Stage, index: int, step: Step, path: str, after: FileState, links: list[str]) -> None:
        inode = after.identity[0]
        if len(links) > 1 and inode in self._staged_links:
            stage.add_name(step.slot, stage.fd, self._staged_links[inode])
            return
        if self._stage_host_name(stage, step, inode):
            self._staged_links[inode] = step.slot
            return
        source = open_regular(self._sides.upper, path)
        try:
            _check_unchanged(source, after)
            stage.add_file(step.slot, source, after.mode, _owner(self._sides.project, path))
            _check_unchanged(source, after)
        finally:
            os.close(source)
        self._staged_links[inode] = step.slot
        for name, found in self._unchanged(links).items():
            if self._sides.joins(name):
                self._stage_parents(stage, index, "/" + name)
                further = self._step("put", index, "/" + name, found)
                stage.add_name(further.slot, stage.fd, step.slot)
                further.new = mark_of(stage.fd, further.slot)
                self._steps.append(further)

    def _unchanged(self, links: list[str]) -> dict[str, FileState]:
        """The names of a hard-linked file that the host already has."""
        names = [name for name in links if name not in self._changed] if len(links) > 1 else []
        found = {name: state_of(self._sides.project, "/" + name) for name in names}
        return {name: one for name, one in found.items() if one is not None and one.kind == "file"}

    def _find_host_names(self) -> dict[int, Step]:
        """The host's own files that get further names, by the layer's inode. They have no names outside the group. The
        steps do nothing; they record that we changed these files' ctimes."""
        chosen = {self._layer.changes[index].path: index for index in self._chosen}
        found: dict[int, Step] = {}
        for inode, links in self._layer.links.items():
            index = next((chosen[name] for name in links if name in chosen), None)
            joined = self._unchanged(links) if index is not None else {}
            one = next(iter(joined.values()), None)
            if index is None or one is None or one.names != len(joined):
                continue
            if len({held.identity[0] for held in joined.values()}) == 1:
                path = "/" + next(iter(joined))
                found[inode] = Step("name", path, index, before=_mark(one), clean=self._sides.is_clean(one))
        return found

    def _stage_host_name(self, stage: Stage, step: Step, inode: int) -> bool:
        held = self._host_names.get(inode)
        if held is None:
            return False
        try:
            with parent_of(self._sides.project, held.path, same_mount=True) as (parent, last):
                stage.add_name(step.slot, parent, last)
        except OSError:
            return False
        self._steps.append(held)
        return True

    def _stage_directory(self, stage: Stage, index: int, path: str, mode: int, before: FileState | None) -> None:
        self._stage_parents(stage, index, path)
        step = self._step("put", index, path, before)
        stage.add_directory(step.slot, _owner(self._sides.project, path))
        step.new = mark_of(stage.fd, step.slot)
        self._steps.append(step)
        self._new_directories.add(path)
        self._seals[path] = Step("seal", path, index, before=step.new, mode=mode)

    def _stage_parents(self, stage: Stage, index: int, path: str) -> None:
        """Stages directories that only the sandbox has, when a single file in them is applied."""
        missing = []
        above = split(path)[0]
        while above != "/" and above not in self._new_directories:
            found = state_of(self._sides.project, above)
            if found is not None:
                if found.kind != "directory":
                    raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), above)
                break
            missing.append(above)
            above = split(above)[0]
        for directory in reversed(missing):
            made = state_of(self._sides.upper, directory)
            self._stage_directory(stage, index, directory, made.mode if made else 0o755, None)

    def _step(self, kind: str, index: int, path: str, before: FileState | None) -> Step:
        clean = before is None or before.kind == "directory" or self._sides.is_clean(before)
        self._slots += 1  # never used twice: what a step that failed has left there is nobody else's
        slot = f"{kind[0]}{self._slots}"
        self._open(index, split(path)[0], 0o300)
        if before is not None and before.kind == "directory":
            self._open(index, path, 0o200, seal=False)
        return Step(kind, path, index, slot, _mark(before) if before is not None else None, clean=clean)

    def _open(self, index: int, path: str, wanted: int, *, seal: bool = True) -> None:
        """Makes a host directory writable that its owner may not write to."""
        if os.geteuid() == 0 or path in self._opens or path in self._new_directories or path == "/":
            return
        found = state_of(self._sides.project, path)
        if found is None or found.kind != "directory" or found.mode & wanted == wanted:
            return
        mark = _mark(found)
        self._opens[path] = Step("open", path, index, before=mark, mode_before=found.mode)
        if seal and path not in self._seals:
            self._seals[path] = Step("seal", path, index, before=mark, mode=found.mode, mode_before=found.mode)

    def _touched(self) -> list[str]:
        places = {split(step.path)[0] for step in self._journal.steps if step.kind != "name"} | {"/"}
        places |= {step.path for step in self._journal.steps if step.kind in ("open", "seal")}
        found = {place: state_of(self._sides.project, place) for place in places}
        return sorted(place for place, one in found.items() if one is None or self._sides.is_clean(one))

    # -- switching

    def _switch(self, stage: Stage) -> None:
        taken: list[Step] = []
        for step in self._journal.steps:
            unit = self._units.of(step.unit)
            # Directories get their modes even if something could not be put into them.
            if unit in self._failed and not (step.kind == "seal" and step.path in self._opens):
                continue
            try:
                if step.kind != "name":
                    do(step, self._sides.project, stage)
                taken.append(step)
            except MovedOn as problem:
                self._fail(unit, str(problem), taken, stage)
            except OSError as problem:
                self._fail(unit, _reason(problem), taken, stage)

    def _fail(self, unit: int, reason: str, taken: list[Step], stage: Stage) -> None:
        self._failed[unit] = reason
        mine = [step for step in taken if self._units.of(step.unit) == unit and step.kind != "open"]
        undo(mine, self._sides.project, stage)


def _check_unchanged(source: int, judged: FileState) -> None:
    """Raises MovedOn if the open file is not, or no longer, the one that was judged: tenants may still run."""
    told = os.fstat(source)
    found = (told.st_ino, told.st_ctime_ns), told.st_mtime_ns, told.st_size
    if found != (judged.identity, judged.modified_ns, judged.size):
        raise MovedOn("the file was changed in the sandbox just now")


def _mark(found: FileState) -> Mark:
    if found.kind == "directory":
        return found.identity[0], 0, 0
    return found.identity[0], found.modified_ns, found.size


def _reason(problem: OSError) -> str:
    if problem.errno in (errno.ELOOP, errno.EXDEV):
        return "a link on the host stands in the way"
    return (problem.strerror or str(problem)).lower()


def _owner(project: int, path: str) -> tuple[int, int]:
    """The owner of the file that is replaced, or of the directory that it is put into."""
    while True:
        if path == "/":
            found = os.fstat(project)
            return found.st_uid, found.st_gid
        try:
            with parent_of(project, path, same_mount=True) as (parent, name):
                found = os.stat(name, dir_fd=parent, follow_symlinks=False)
                return found.st_uid, found.st_gid
        except OSError:
            path = split(path)[0]
