"""SandboxAuditLog: one sandbox's own view of its record, as in Milady. It has names of secrets, never their values."""

from __future__ import annotations

import time

from sandbox.audit import entry
from sandbox.audit.feed import Feed, feed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox.audit.entry import Plain
    from sandbox.audit.feed import Entry
    from sandbox.audit.record import Record


class SandboxAuditLog:
    """Writes entries to the process-wide feed and, if it has one, to a file. Remembers its own entries."""

    def __init__(self, record: Record | None = None, *, capacity: int = 5000) -> None:
        self._file = record
        self._own = Feed(capacity)

    def record(self, given: Mapping[str, object]) -> None:
        """Records an entry: `type`, `summary` and any other field of an entry. Raises SandboxError."""
        fields = dict(given)
        type, summary = str(fields.pop("type")), str(fields.pop("summary"))
        severity = str(fields.pop("severity", "info"))
        metadata: Mapping[str, Plain] | None = fields.pop("metadata", None)  # type: ignore[assignment]
        trace_id = fields.pop("traceId", fields.pop("trace_id", None))
        fields.pop("timestamp", None)  # the record sets the time
        entry.check(type, severity, None)
        told: dict[str, object] = {
            "timestamp": entry.timestamp(time.time()),
            "type": type,
            "severity": severity,
            "summary": summary,
            **fields,
        }
        if trace_id is not None:
            told["traceId"] = trace_id
        if metadata:
            told["metadata"] = dict(metadata)
        self._own.publish(told)
        if self._file is None:
            feed.publish(told)
        else:
            texts = {name: str(value) for name, value in fields.items()}
            trace = None if trace_id is None else str(trace_id)
            self._file.write(type, summary, severity=severity, metadata=metadata, trace_id=trace, **texts)  # type: ignore[arg-type]

    def record_token_replacement(self, direction: str, url: str, token_ids: Sequence[str]) -> None:
        """Secret tokens were put into a request ("outbound") or taken out of a response ("inbound")."""
        types = {"outbound": "secret_token_replacement_outbound", "inbound": "secret_sanitization_inbound"}
        place = without_secrets(url)
        self.record(
            {
                "type": types[direction],
                "summary": f"{len(token_ids)} secret token(s), {direction}: {place}",
                "metadata": {"url": place, "tokenIds": ",".join(token_ids), "count": len(token_ids)},
            }
        )

    def record_capability_invocation(
        self, capability: str, detail: str, metadata: Mapping[str, Plain] | None = None
    ) -> None:
        """A privileged capability (screen, signing, …) was used."""
        self.record(
            {
                "type": "privileged_capability_invocation",
                "summary": f"{capability}: {detail}",
                "severity": "warn",
                "metadata": {"capability": capability, **(metadata or {})},
            }
        )

    def record_policy_decision(self, decision: str, reason: str, metadata: Mapping[str, Plain] | None = None) -> None:
        """A policy decided "allow" or "deny"."""
        self.record(
            {
                "type": "policy_decision",
                "summary": f"{decision}: {reason}",
                "severity": "info" if decision == "allow" else "warn",
                "metadata": {"decision": decision, "reason": reason, **(metadata or {})},
            }
        )

    def get_recent(self, count: int = 100) -> list[Entry]:
        """The last `count` entries of this sandbox."""
        return self._own.query(limit=count)

    def get_by_type(self, type: str, count: int = 100) -> list[Entry]:
        """The last `count` entries of that type."""
        return self._own.query(type=type, limit=count)


def without_secrets(url: str) -> str:
    """A URL without the parts that may contain a secret: user, query, fragment."""
    scheme, found, rest = url.partition("://")
    if not found:
        scheme, rest = "", url
    authority, slash, path = rest.partition("/")
    host = authority.rpartition("@")[2].split("?")[0].split("#")[0]
    path = path.split("?")[0].split("#")[0]
    return f"{scheme}{found}{host}{slash}{path}"
