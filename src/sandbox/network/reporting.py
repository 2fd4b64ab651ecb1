"""What the gate tells: an event for whoever listens, an entry for the record; floods are counted, not listed."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from sandbox.events import event

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.network.destination import Destination
    from sandbox.policy.decision import Decision


class Reporter:
    """One sandbox's telling."""

    def __init__(self, emit: Callable[[dict[str, object]], None], record: Callable[..., None]) -> None:
        self._emit = emit
        self._record = record
        self._throttle = Throttle()

    def report(
        self,
        destination: Destination,
        *,
        method: str,
        url: str,
        decision: Decision,
        status: int = 0,
        sent: int = 0,
        received: int = 0,
        seconds: float = 0.0,
        **more: object,
    ) -> None:
        """Event and record; see GateContext.report."""
        if decision or self._throttle.admits():
            self.note(decision, destination, method)
            self.tell(decision, method, url, status, sent, received, seconds, **more)

    def note(self, decision: Decision, destination: Destination, method: str = "CONNECT") -> None:
        """An entry of the record."""
        metadata: dict[str, object] = {"host": destination.host, "port": destination.port, "method": method}
        skipped = self._throttle.take_skipped()
        if skipped:
            metadata["attempts_not_listed"] = skipped
        verdict = "allowed" if decision else "blocked"
        self._record(
            "policy_decision",
            f"network {verdict}: {method} {destination}",
            severity="info" if decision else "warn",
            operation="network",
            target=str(destination),
            result=verdict,
            policy=decision.rule,
            reason=decision.reason,
            metadata=metadata,
        )

    def tell(
        self,
        decision: Decision,
        method: str,
        url: str,
        status: int = 0,
        sent: int = 0,
        received: int = 0,
        seconds: float = 0.0,
        **more: object,
    ) -> None:
        """An event in seed 002's shape, with the rule and the reason."""
        details: dict[str, object] = {
            "method": method,
            "url": url,
            "status_code": status,
            "request_bytes": sent,
            "response_bytes": received,
            "duration_ms": round(seconds * 1000),
            "blocked": not decision,
            "rule": decision.rule,
            "reason": decision.reason,
        }
        self._emit(event("network", **details, **more))

    def broke(self, problem: BaseException) -> None:
        """A handler raised what it should not: a bug of ours, or a record that cannot be written."""
        summary = f"a connection broke the gate's handler: {type(problem).__name__}: {str(problem)!a}"
        try:
            self._record("fetch_proxy_error", summary, severity="error")
        except Exception as worse:  # noqa: BLE001 - the connection is refused already; the others must live
            print(f"sandbox: {summary}; and it could not be recorded: {worse!r}", file=sys.stderr)


class Throttle:
    """Lets a burst of refusals through, then a trickle, and counts the rest: the record must not fill a disk."""

    BURST = 1000.0
    PER_SECOND = 50.0

    def __init__(self) -> None:
        self._tokens = self.BURST
        self._at = time.monotonic()
        self._skipped = 0

    def admits(self) -> bool:
        """Whether this one is written out."""
        now = time.monotonic()
        self._tokens = min(self.BURST, self._tokens + (now - self._at) * self.PER_SECOND)
        self._at = now
        if self._tokens < 1:
            self._skipped += 1
            return False
        self._tokens -= 1
        return True

    def take_skipped(self) -> int:
        """How many were not, since the last one that was."""
        skipped, self._skipped = self._skipped, 0
        return skipped
