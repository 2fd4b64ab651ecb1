"""The feed and the per-sandbox log as in Milady."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.audit.audit_log import SandboxAuditLog, without_secrets
from sandbox.audit.feed import Feed, feed, get_audit_feed_size, query_audit_feed, subscribe_audit_feed
from sandbox.audit.reading import entries
from sandbox.audit.record import Record
from sandbox.errors import SandboxError


def entry(number: int, **more: object) -> dict[str, object]:
    stamp = f"2026-01-28T10:30:{number % 60:02}.000Z"
    return {"timestamp": stamp, "type": "policy_decision", "severity": "info", "summary": str(number), **more}


def test_it_holds_five_thousand_and_trims_to_half() -> None:
    assert feed.capacity == 5000
    small = Feed(10)
    for number in range(10):
        small.publish(entry(number))
    assert len(small) == 10
    small.publish(entry(10))
    assert [one["summary"] for one in small.query()] == ["6", "7", "8", "9", "10"]


def test_queries_filter_and_limit_to_the_newest() -> None:
    some = Feed()
    for number in range(6):
        some.publish(entry(number, severity="warn" if number % 2 else "info"))
    assert [one["summary"] for one in some.query(severity="warn", limit=2)] == ["3", "5"]
    assert some.query(type="sandbox_lifecycle") == []
    assert [one["summary"] for one in some.query(since_ms=1769596204000)] == ["4", "5"]
    assert some.query(limit=0) == []


def test_the_process_wide_feed_gets_every_record(tmp_path: Path) -> None:
    heard: list[object] = []
    end = subscribe_audit_feed(lambda one: heard.append(one["summary"]))
    before = get_audit_feed_size()
    Record(str(tmp_path / "a"), sandbox="vm-a").write("sandbox_lifecycle", "one")
    Record(str(tmp_path / "b"), sandbox="vm-b").write("sandbox_lifecycle", "two")
    end()
    end()
    SandboxAuditLog().record({"type": "sandbox_lifecycle", "summary": "three"})
    assert heard == ["one", "two"]
    assert get_audit_feed_size() == before + 3
    assert [one["summary"] for one in query_audit_feed(type="sandbox_lifecycle", limit=3)] == ["one", "two", "three"]


def test_a_subscriber_that_raises_affects_nobody_else(capsys: pytest.CaptureFixture[str]) -> None:
    some = Feed()
    heard: list[object] = []

    def broken(_: object) -> None:
        raise RuntimeError("mine")

    some.subscribe(broken)
    some.subscribe(heard.append)
    some.publish(entry(1))
    assert len(heard) == 1
    assert "mine" in capsys.readouterr().err


def test_the_six_methods(tmp_path: Path) -> None:
    log = SandboxAuditLog(Record(str(tmp_path), sandbox="vm-1"))
    log.record({"type": "sandbox_lifecycle", "summary": "ready", "severity": "info", "traceId": "t"})
    log.record_token_replacement("outbound", "https://u:pw@api.x.org/v1?key=sk-1#f", ["OPENAI"])
    log.record_token_replacement("inbound", "https://api.x.org/v1", ["OPENAI", "OTHER"])
    log.record_capability_invocation("screen", "screenshot", {"width": 800})
    log.record_policy_decision("deny", "host is not allowed", {"host": "evil.org"})
    assert [one["type"] for one in log.get_recent(3)] == [
        "secret_sanitization_inbound",
        "privileged_capability_invocation",
        "policy_decision",
    ]
    (sent,) = log.get_by_type("secret_token_replacement_outbound", 10)
    assert sent["metadata"] == {"url": "https://api.x.org/v1", "tokenIds": "OPENAI", "count": 1}
    on_disk = list(entries(str(tmp_path)))
    assert len(on_disk) == 5
    assert on_disk[0]["traceId"] == "t"
    assert "sk-1" not in (tmp_path / "audit.jsonl").read_text()
    with pytest.raises(SandboxError):
        log.record({"type": "nonsense", "summary": "x"})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.org/p?q=secret", "https://a.org/p"),
        ("https://a.org?q=secret", "https://a.org"),
        ("https://user:secret@a.org/", "https://a.org/"),
        ("a.org/p#secret", "a.org/p"),
    ],
)
def test_urls_are_recorded_without_what_may_be_secret(url: str, shown: str) -> None:
    assert without_secrets(url) == shown
