"""The record as OpenTelemetry logs: lines of OTLP/JSON, as collectors read them from a file (`otlpjsonfile`).

The messages are those of `opentelemetry-proto` (extra `otel`), so names and types are OpenTelemetry's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue

AT_ONCE = 500  # entries in a line
_NUMBERS = {"info": 9, "warn": 13, "error": 17, "critical": 21}  # SeverityNumber
_OWN = ("timestamp", "severity", "summary")  # these have fields of their own; everything else is an attribute


def lines(entries: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The entries as lines of JSON, a few hundred in each. Raises SandboxError when the extra is not installed."""
    try:
        from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise SandboxError("OpenTelemetry logs need `pip install 'agent-sandbox[otel]'`") from None
    remaining = iter(entries)
    while some := list(islice(remaining, AT_ONCE)):
        yield json.dumps(MessageToDict(_logs(some), use_integers_for_enums=True), separators=(",", ":"))


def _logs(entries: list[dict[str, Any]]) -> Any:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData, ResourceLogs, ScopeLogs
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    records = [
        LogRecord(
            time_unix_nano=_nanoseconds(str(entry.get("timestamp", ""))),
            severity_number=_NUMBERS.get(str(entry.get("severity")), 0),  # type: ignore[arg-type,unused-ignore]
            severity_text=str(entry.get("severity", "")).upper(),
            body=AnyValue(string_value=str(entry.get("summary", ""))),
            attributes=list(_attributes(entry)),
        )
        for entry in entries
    ]
    scope = ScopeLogs(scope=InstrumentationScope(name="sandbox.audit"), log_records=records)
    named = Resource(attributes=[_pair("service.name", "sandbox")])
    return LogsData(resource_logs=[ResourceLogs(resource=named, scope_logs=[scope])])


def _attributes(entry: dict[str, Any]) -> Iterator[KeyValue]:
    for name, value in entry.items():
        if name == "metadata" and isinstance(value, dict):
            yield from (_pair(f"sandbox.metadata.{key}", one) for key, one in value.items())
        elif name not in _OWN and value is not None:
            yield _pair("event.name" if name == "type" else f"sandbox.{name}", value)


def _pair(name: str, value: object) -> KeyValue:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

    if isinstance(value, bool):
        return KeyValue(key=name, value=AnyValue(bool_value=value))
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return KeyValue(key=name, value=AnyValue(int_value=value))
    if isinstance(value, float):
        return KeyValue(key=name, value=AnyValue(double_value=value))
    return KeyValue(key=name, value=AnyValue(string_value=value if isinstance(value, str) else json.dumps(value)))


def _nanoseconds(text: str) -> int:
    try:
        return max(0, round(datetime.fromisoformat(text).timestamp() * 1000)) * 1_000_000
    except (ValueError, OverflowError):
        return 0
