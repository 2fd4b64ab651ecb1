"""What the guards of one sandbox report: on the record, and to the person at the end.

A tenant can fill the disk that the record is on. What cannot be recorded then is done all the same, and is still told
to the person; the failure is raised when everything has been done.
"""

from __future__ import annotations

from sandbox.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.audit.record import Record

MOST = 1000  # entries of `undone`


class GuardReports:
    """Its methods never raise."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.undone: list[tuple[str, str]] = []  # what the host's git would have run, and its new path; "": not moved
        self.unrecorded: SandboxError | None = None  # why the first entry that is missing could not be written

    def tell_undone(self, path: str, saved: str) -> None:
        """What the host's git would have run. Kept for the person to see at the end."""
        from sandbox.audit import file_entries

        if len(self.undone) < MOST:
            self.undone.append((path, saved))
        self._try(file_entries.undone, path, saved)

    def tell_covered(self, summary: str, path: str, rule: str) -> None:
        """A file with a blocked name appeared while the sandbox ran."""
        from sandbox.audit import file_entries

        self._try(file_entries.covered, summary, path, rule)

    def tell_made(self, path: str) -> None:
        """A file that programs on the host act on was created."""
        from sandbox.audit import file_entries

        self._try(file_entries.made, path)

    def _try(self, write: Callable[..., None], *words: str) -> None:
        try:
            write(self._record, *words)
        except SandboxError as problem:
            self.unrecorded = self.unrecorded or problem
