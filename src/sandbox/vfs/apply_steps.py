"""The steps that move staged changes into place. Each can be undone, even later by another process.

| step | does | undone by |
|---|---|---|
| open | makes a directory of the host writable for its owner | its mode |
| put | exchanges the staged file with what is there | exchanging them again |
| mode | changes a file's mode | its mode |
| delete | moves what is there to the stage | moving it back |
| seal | gives a directory its mode, when it is complete | its mode |
| name | nothing: a host file got another hard link when it was staged | |

Undoing looks at what is there, not at what was done, so it may be interrupted and repeated. What somebody has changed
since is left alone.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox.vfs.apply_staging import Mark, MovedOn, exchange, mark_of, put_new
from sandbox.vfs.open_beneath import opened, parent_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sandbox.vfs.apply_staging import Stage

JUST_NOW = "the file was changed on the host just now"


@dataclass(slots=True)
class Step:
    """One row of the table. `unit`: of steps with the same number, all are done or none."""

    kind: str
    path: str
    unit: int
    slot: str = ""
    before: Mark | None = None
    """What the step replaces, removes or gives a mode."""
    new: Mark | None = None
    mode: int | None = None
    mode_before: int | None = None
    clean: bool = True
    """The host's side was as it was at the sandbox's start: a time of change that is ours is no change."""

    def kept(self) -> list[object]:
        """For the journal."""
        return [
            *(self.kind, os.fsencode(self.path).hex(), self.unit, self.slot),
            *(self.before, self.new, self.mode, self.mode_before, self.clean),
        ]

    @classmethod
    def read(cls, kept: Sequence[Any]) -> Step:
        kind, path, unit, slot, before, new, mode, mode_before, clean = kept
        place = os.fsdecode(bytes.fromhex(path))
        return cls(kind, place, unit, slot, _mark(before), _mark(new), mode, mode_before, clean)


def _mark(kept: Sequence[int] | None) -> Mark | None:
    return (kept[0], kept[1], kept[2]) if kept else None


def do(step: Step, project: int, stage: Stage) -> None:
    """Does one step. When it raises MovedOn or OSError, it has done nothing."""
    if step.kind == "open":
        assert step.mode_before is not None
        _set_mode(project, step, step.mode_before | 0o700)
    elif step.kind in ("mode", "seal"):
        assert step.mode is not None
        _set_mode(project, step, step.mode)
    else:
        with parent_of(project, step.path, same_mount=True) as (parent, name):
            if mark_of(parent, name) != step.before:
                raise MovedOn(JUST_NOW)
            if step.kind == "delete":
                _delete(step, parent, name, stage)
            else:
                _put(step, parent, name, stage)


def _delete(step: Step, parent: int, name: str, stage: Stage) -> None:
    put_new(parent, name, stage.fd, step.slot)
    if mark_of(stage.fd, step.slot) != step.before:
        put_new(stage.fd, step.slot, parent, name)
        raise MovedOn(JUST_NOW)


def _put(step: Step, parent: int, name: str, stage: Stage) -> None:
    if mark_of(stage.fd, step.slot) != step.new:
        raise MovedOn("somebody changed what was about to be put there")
    if step.before is None:
        put_new(stage.fd, step.slot, parent, name)
        return
    exchange(stage.fd, step.slot, parent, name)
    if mark_of(stage.fd, step.slot) != step.before:
        exchange(stage.fd, step.slot, parent, name)
        raise MovedOn(JUST_NOW)


def undo(steps: Sequence[Step], project: int, stage: Stage | None) -> None:
    """Undoes steps, the last first. `stage` None: it is gone, and so is what could have been restored from it."""
    for step in reversed(steps):
        try:
            if step.kind == "seal":
                _set_mode(project, step, (step.mode_before or 0) | 0o700)
            elif step.kind == "mode" and step.mode_before is not None:
                _set_mode(project, step, step.mode_before)
            elif stage is not None and step.kind in ("put", "delete"):
                with parent_of(project, step.path, same_mount=True) as (parent, name):
                    _take_back(step, parent, name, stage)
        except (OSError, MovedOn):
            pass  # somebody has changed it since
    for step in reversed(steps):
        if step.kind in ("open", "seal") and step.mode_before is not None:
            try:
                _set_mode(project, step, step.mode_before)
            except (OSError, MovedOn):
                pass


def _take_back(step: Step, parent: int, name: str, stage: Stage) -> None:
    there = mark_of(parent, name)
    old = next(
        (slot for slot in (step.slot, f"{step.slot}.old") if step.before and _is(stage, slot, step.before)), None
    )
    if step.new is not None and there == step.new:
        if old is None:
            if step.before is None:
                _withdraw(step, parent, name, stage)
            return
        if step.new[1:] == (0, 0) and os.listdir(f"/proc/self/fd/{parent}/{name}"):
            return  # a directory in which somebody has put something since
        exchange(stage.fd, old, parent, name)
    elif there is None and old is not None:
        put_new(stage.fd, old, parent, name)


def _is(stage: Stage, slot: str, wanted: Mark) -> bool:
    return mark_of(stage.fd, slot) == wanted


def _withdraw(step: Step, parent: int, name: str, stage: Stage) -> None:
    """Removes something that was not there before, unless it is a directory that is not empty."""
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as problem:
        if problem.errno != errno.ENOTDIR:
            return
        put_new(parent, name, stage.fd, f"{step.slot}.back")


def _set_mode(project: int, step: Step, mode: int) -> None:
    """Sets the mode of exactly the file or directory of the step. Raises MovedOn when another one is there."""
    with opened(project, step.path, same_mount=True) as fd:
        told = os.fstat(fd)
        if step.before is None or told.st_ino != step.before[0] or stat.S_ISLNK(told.st_mode):
            raise MovedOn(JUST_NOW)
        os.chmod(f"/proc/self/fd/{fd}", mode & 0o777)
