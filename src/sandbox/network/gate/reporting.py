"""The gate's events and its entries in the record. Floods are counted, not listed."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from sandbox.events import event

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from sandbox.network.destination import ConnectionOutcome, Destination
    from sandbox.policy.decision import Decision


# The type of an entry about a secret, and what was done with it.
SECRET_ENTRIES = {
    "outbound": ("secret_token_replacement_outbound", "was put into a request to"),
    "inbound": ("secret_sanitization_inbound", "was taken out of an answer of"),
}


class GateReporter:
    """Reports for one sandbox."""

    def __init__(self, emit: Callable[[dict[str, object]], None], record: Callable[..., None]) -> None:
        self._emit = emit
        self._record = record
        self._throttles = {True: Throttle(5000, 200), False: Throttle(1000, 50)}
        self._secret_throttles = {"outbound": Throttle(5000, 200), "inbound": Throttle(1000, 50)}

    def report(
        self,
        destination: Destination,
        *,
        method: str,
        url: str,
        decision: Decision,
        **outcome: Unpack[ConnectionOutcome],
    ) -> None:
        """Emits an event and writes an entry; see GateContext.report. In a flood of refusals both are left out."""
        if self.note(decision, destination, method) or decision:
            self.tell(decision, method, url, **outcome)

    def note(self, decision: Decision, destination: Destination, method: str = "CONNECT") -> bool:
        """Writes an entry in the record. False when it is part of a flood and was only counted."""
        throttle = self._throttles[decision.allowed]
        if not throttle.admits():
            return False
        metadata: dict[str, object] = {"host": destination.host, "port": destination.port, "method": method}
        skipped = throttle.take_skipped()
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
        return True

    def secret_used(self, destination: Destination, direction: str, name: str) -> None:
        """See GateContext.secret_used. In a flood entries are only counted."""
        throttle = self._secret_throttles[direction]
        if not throttle.admits():
            return
        type, words = SECRET_ENTRIES[direction]
        metadata: dict[str, object] = {"host": destination.host, "port": destination.port, "tokenIds": name, "count": 1}
        skipped = throttle.take_skipped()
        if skipped:
            metadata["uses_not_listed"] = skipped
        summary = f"secret {name} {words} {destination}"
        self._record(type, summary, operation="secret", target=str(destination), metadata=metadata)

    def tell(self, decision: Decision, method: str, url: str, **outcome: Unpack[ConnectionOutcome]) -> None:
        """Emits a `network` event in UDS's format, with the rule and the reason."""
        details: dict[str, object] = {
            "method": method,
            "url": url,
            "status_code": outcome.get("status", 0),
            "request_bytes": outcome.get("sent", 0),
            "response_bytes": outcome.get("received", 0),
            "duration_ms": round(outcome.get("seconds", 0.0) * 1000),
            "blocked": not decision,
            "rule": decision.rule,
            "reason": decision.reason,
        }
        if "error" in outcome:
            details["error"] = outcome["error"]
        self._emit(event("network", **details))

    def broke(self, problem: BaseException) -> None:
        """A handler raised an unexpected exception: our own bug, or a record that cannot be written."""
        summary = f"a connection broke the gate's handler: {type(problem).__name__}: {str(problem)!a}"
        try:
            self._record("fetch_proxy_error", summary, severity="error")
        except Exception as worse:  # noqa: BLE001 - the connection is refused already; the others must live
            print(f"sandbox: {summary}; and it could not be recorded: {worse!r}", file=sys.stderr)


class Throttle:
    """Admits a burst, then a number per second, and counts the rest, so that a tenant cannot fill the disk."""

    def __init__(self, burst: float, per_second: float) -> None:
        self._burst = burst
        self._per_second = per_second
        self._tokens = burst
        self._at = time.monotonic()
        self._skipped = 0

    def admits(self) -> bool:
        """Whether this entry is written."""
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second)
        self._at = now
        if self._tokens < 1:
            self._skipped += 1
            return False
        self._tokens -= 1
        return True

    def take_skipped(self) -> int:
        """How many entries were skipped since the last one that was written."""
        skipped, self._skipped = self._skipped, 0
        return skipped
