"""The record as OpenTelemetry logs: what an OpenTelemetry reader makes of it."""

from __future__ import annotations

import json
from pathlib import Path

from google.protobuf.json_format import Parse  # type: ignore[import-untyped,import-not-found,unused-ignore]
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from sandbox.audit import otlp
from sandbox.audit.record import Record
from tests.sandboxes import Command, cli, home

__all__ = ["cli", "home"]


def parsed(text: str) -> list[LogsData]:
    """As a collector reads it. Raises for a field or type that OpenTelemetry does not have."""
    return [Parse(line, LogsData()) for line in text.splitlines()]


def test_an_entry_has_its_time_severity_text_and_the_rest_as_attributes() -> None:
    entry = {
        "seq": 7, "timestamp": "2026-01-28T10:30:00.250Z", "type": "policy_decision", "severity": "critical",
        "summary": "no \u202e such host\n", "sandbox": "vm-a1b2c3d4", "result": "blocked", "target": "evil.example:443",
        "metadata": {"port": 443, "tls": True, "share": 0.5, "none": None},
    }  # fmt: skip
    (logs,) = parsed("\n".join(otlp.lines([entry])))
    record = logs.resource_logs[0].scope_logs[0].log_records[0]
    assert record.time_unix_nano == 1769596200250000000
    assert (record.severity_number, record.severity_text) == (21, "CRITICAL")
    assert record.body.string_value == "no \u202e such host\n"
    told = {one.key: one.value for one in record.attributes}
    assert told["event.name"].string_value == "policy_decision"
    assert told["sandbox.sandbox"].string_value == "vm-a1b2c3d4"
    assert told["sandbox.seq"].int_value == 7
    assert (told["sandbox.metadata.port"].int_value, told["sandbox.metadata.tls"].bool_value) == (443, True)
    assert logs.resource_logs[0].resource.attributes[0].value.string_value == "sandbox"


def test_many_entries_are_some_lines_and_none_is_lost() -> None:
    entries = [{"seq": number, "summary": str(number)} for number in range(1234)]
    read = parsed("\n".join(otlp.lines(entries)))
    found = [one.body.string_value for logs in read for one in logs.resource_logs[0].scope_logs[0].log_records]
    assert found == [str(number) for number in range(1234)]
    assert list(otlp.lines([])) == []


def test_sandbox_audit_prints_it_and_filters_by_text(cli: Command, home: Path) -> None:
    record = Record(str(home / "audit"), sandbox="vm-00000001")
    record.write("policy_decision", "Apples", target="a.example")
    record.write("policy_decision", "pears", target="b.example")
    record.close()
    (logs,) = parsed(cli("audit", "--format", "otlp", "--text", "APPLES").stdout)
    (one,) = logs.resource_logs[0].scope_logs[0].log_records
    assert one.body.string_value == "Apples"
    (line,) = cli("audit", "--json", "--text", "b.exam").stdout.splitlines()
    assert json.loads(line)["summary"] == "pears"
