"""Entries of the record about files: blocked, opened, created."""

from __future__ import annotations

from sandbox.events import event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.audit.record import Record
    from sandbox.events import Events


def covered(record: Record, summary: str, path: str, rule: str) -> None:
    """A file with a blocked name appeared while the sandbox ran."""
    record.write(
        "policy_decision",
        summary,
        severity="warn",
        operation="cover",
        target=path,
        result="blocked",
        policy="sensitive-file-pattern",
        reason=f"Matches blocked pattern: {rule}",
    )


class Touches:
    """Records attempts to open blocked files, for one sandbox."""

    def __init__(self, record: Record, events: Events, rules: Mapping[str, str], tops: Mapping[str, str]) -> None:
        """`rules`: path -> why it is blocked. `tops`: directory -> how to write it in an entry (`.`, `~`)."""
        self.record = record
        self.rules = rules
        self._events = events
        self._tops = tops

    def tell(self, path: str, operation: str, rule: str, pid: int, program: str) -> None:
        """`program` is the name that the process gave itself; a tenant can choose it freely."""
        shown = (sign + path[len(top) :] for top, sign in self._tops.items() if path.startswith(f"{top}/"))
        target = next(shown, path)
        self.record.write(
            "policy_decision",
            f"{operation} {target}",
            severity="warn",
            operation=operation,
            target=target,
            result="blocked",
            policy="sensitive-file-pattern",
            reason=f"Matches blocked pattern: {rule}",
            metadata={"program": program, "pid": pid},
        )
        self._events.emit(event("file", op=operation, path=path, blocked=True))


def undone(record: Record, path: str, saved: str) -> None:
    """A file that git on the host would have run or obeyed was moved out of git's way."""
    record.write(
        "policy_decision",
        f"the host's git would have run it: now {saved}" if saved else "the host's git may run it: not undone",
        severity="warn" if saved else "error",
        operation="undo",
        target=path,
        result="blocked" if saved else "allowed",
        policy="protected-file",
        reason="Programs on the host act on it",
    )


def made(record: Record, path: str) -> None:
    """A file that programs on the host act on was created, inside or outside."""
    record.write(
        "policy_decision",
        "a file that programs on the host act on was made while the sandbox lived",
        severity="warn",
        operation="write",
        target=path,
        result="allowed",
        policy="protected-file",
    )
