"""What asking for a signature leads to, in the specification's shapes."""

from __future__ import annotations

from typing import Any, NamedTuple

from sandbox.policy.decision import Decision
from sandbox.signing.ledger import Row


class SigningResult(NamedTuple):
    """`pending`: it needs a person's approval first. `signature` is there only after success."""

    id: str
    hash: str
    decision: Decision
    confirm: bool = False
    pending: bool = False
    signature: str | None = None
    confirmed: bool = False
    error: str | None = None

    def plain(self) -> dict[str, Any]:
        """`{success, signature?, error?, policyDecision, humanConfirmed}`, and the id and hash it is about."""
        told: dict[str, Any] = {
            "success": self.signature is not None,
            "requestId": self.id,
            "hash": self.hash,
            "pending": self.pending,
            "policyDecision": {
                "allowed": self.decision.allowed,
                "reason": str(self.decision.reason),
                "requiresHumanConfirmation": self.confirm,
                "matchedRule": self.decision.rule,
            },
            "humanConfirmed": self.confirmed,
        }
        if self.signature is not None:
            told["signature"] = self.signature
        if self.error is not None:
            told["error"] = self.error
        return told


def pending_approval(row: Row, request: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """`{requestId, request, decision, createdAt, expiresAt}`, and what a person should look at."""
    assert row.expires_at is not None
    return {
        "requestId": row.id,
        "hash": row.hash,
        "sandbox": row.sandbox,
        "kind": row.kind,
        "request": {"requestId": row.id, **request},
        "shown": shown,
        "decision": {
            "allowed": True,
            "reason": "it needs a person's approval",
            "requiresHumanConfirmation": True,
            "matchedRule": "person",
        },
        "createdAt": int(row.asked_at * 1000),
        "expiresAt": int(row.expires_at * 1000),
    }
