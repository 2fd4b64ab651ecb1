"""What the record says about files: covered, touched, made."""

from __future__ import annotations

from sandbox.events import event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.audit.record import Record
    from sandbox.events import Events


def covered(record: Record, summary: str, path: str, rule: str) -> None:
    """A blocked name appeared while the sandbox lived."""
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


def touched(record: Record, events: Events, path: str, operation: str, pid: int, count: int) -> None:
    """A tenant tried to open what is covered. It is still waiting for the answer, so it can be named."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            program = file.read().strip()
    except OSError:
        program = "?"
    record.write(
        "policy_decision",
        f"{program} tried to {operation} a blocked file",
        severity="warn",
        operation="read",
        target=path,
        result="blocked",
        policy="sensitive-file-pattern",
        reason="Matches a blocked pattern",
        metadata={"program": program, "pid": pid, "attempts": count},
    )
    events.emit(event("file", op=operation, path=path, blocked=True))


def made(record: Record, path: str) -> None:
    """A file that programs on the host act on was made, by whomever."""
    record.write(
        "policy_decision",
        "a file that programs on the host act on was made while the sandbox lived",
        severity="warn",
        operation="write",
        target=path,
        result="allowed",
        policy="protected-file",
    )
