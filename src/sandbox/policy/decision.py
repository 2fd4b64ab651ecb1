"""What every rule answers with."""

from __future__ import annotations


class Decision:
    """Allowed or not, by which rule, and why: the same words in the error, the record, the event and `why`."""

    __slots__ = ("allowed", "rule", "reason")

    def __init__(self, allowed: bool, rule: str, reason: str) -> None:
        self.allowed = allowed
        self.rule = rule
        self.reason = reason

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
