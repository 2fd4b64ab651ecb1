"""The answer of every rule."""

from __future__ import annotations

from sandbox.errors import Message


class Decision:
    """Allowed or not, by which rule, and why. The reason is the same in the error, the record, the event and `why`.

    Decision(False, "deny-read", "Denied by filesystem.deny_read: {pattern}", pattern=pattern)
    """

    __slots__ = ("allowed", "rule", "reason")

    def __init__(self, allowed: bool, rule: str, reason: str, /, **values: object) -> None:
        self.allowed = allowed
        self.rule = rule
        self.reason = Message(reason, **values) if values else reason

    def __bool__(self) -> bool:
        return self.allowed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and (self.allowed, self.rule, self.reason) == (
            other.allowed,
            other.rule,
            other.reason,
        )

    def __repr__(self) -> str:
        return f"Decision({'allowed' if self.allowed else 'denied'}, {self.rule!r}, {self.reason!r})"
