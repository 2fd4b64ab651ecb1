"""The journal of `apply`: what it is about to do. It is written outside the project before the project is touched.

| state | after a crash |
|---|---|
| staging | the stage is removed |
| switching | every step is undone, the stage is removed |
| done | the stage is removed |
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandbox.vfs.apply_staging import Stage
from sandbox.vfs.apply_steps import Step, undo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STAGING, SWITCHING, DONE = "staging", "switching", "done"


class Journal:
    """The journal of one `apply`. `touched`: directories of the project that were unchanged and that we change now."""

    def __init__(self, directory: str, name: str, steps: list[Step], touched: list[str], state: str) -> None:
        self._file = os.path.join(directory, "journal.json")
        self.name = name
        self.steps = steps
        self.touched = touched
        self.state = state

    @classmethod
    def begin(cls, directory: str) -> Journal:
        made = cls(directory, f".sandbox-apply-{os.urandom(8).hex()}", [], [], STAGING)
        made.write(STAGING)
        return made

    @classmethod
    def find(cls, directory: str) -> Journal | None:
        """The journal that a crash left behind, or None."""
        try:
            with open(os.path.join(directory, "journal.json"), encoding="utf-8") as file:
                kept = json.load(file)
        except FileNotFoundError:
            return None
        steps = [Step.read(one) for one in kept["steps"]]
        touched = [os.fsdecode(bytes.fromhex(one)) for one in kept["touched"]]
        return cls(directory, kept["stage"], steps, touched, kept["state"])

    def write(self, state: str) -> None:
        """Writes it; it is on disk when this returns."""
        self.state = state
        kept = {
            "stage": self.name,
            "state": state,
            "steps": [step.kept() for step in self.steps],
            "touched": [os.fsencode(path).hex() for path in self.touched],
        }
        fd = os.open(f"{self._file}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(kept, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{self._file}.new", self._file)
        directory = os.open(os.path.dirname(self._file), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)  # else a power cut could leave the state before, whose repair removes what was replaced
        finally:
            os.close(directory)

    def end(self) -> None:
        os.unlink(self._file)


def clear(journal: Journal, project: int) -> Sequence[Step]:
    """Restores the project after an interrupted `apply`, and removes the stage. After a finished one, only removes it.

    Returns the steps that were undone, because this has changed their ctimes.
    """
    with _stage(project, journal.name) as stage:
        taken_back: Sequence[Step] = ()
        if journal.state == SWITCHING:
            taken_back = journal.steps
            undo(taken_back, project, stage)
        if stage is not None:
            stage.remove()
    return taken_back


@contextmanager
def _stage(project: int, name: str) -> Iterator[Stage | None]:
    try:
        stage = Stage(project, name)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    except OSError:  # a link with that name, which we did not make
        yield None
        return
    try:
        yield stage
    finally:
        stage.close()
