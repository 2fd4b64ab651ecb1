"""What is told, and how a flood of it is kept from filling a disk."""

from __future__ import annotations

from sandbox.network.destination import Destination
from sandbox.network.gate.reporting import GateReporter
from sandbox.policy.decision import Decision
from tests.network.room import Heard

NO = Decision(False, "network.allowed_hosts", "evil.test is not allowed")
YES = Decision(True, "network.allowed_hosts: good.test", "good.test is allowed")


def test_an_event_has_the_shape_clients_know() -> None:
    heard = Heard()
    GateReporter(heard.emit, heard.record).report(
        Destination("good.test", 443, "dns"), method="GET", url="https://good.test/x", decision=YES, status=200,
        sent=1, received=2, seconds=0.25,
    )  # fmt: skip
    assert heard.events == [
        {
            "method": "GET",
            "url": "https://good.test/x",
            "status_code": 200,
            "request_bytes": 1,
            "response_bytes": 2,
            "duration_ms": 250,
            "blocked": False,
            "rule": YES.rule,
            "reason": YES.reason,
        }
    ]


def test_a_flood_of_refusals_is_counted_and_hides_nothing_that_was_allowed() -> None:
    heard = Heard()
    reporter = GateReporter(heard.emit, heard.record)
    for _ in range(20_000):
        reporter.report(Destination("evil.test", 443, "dns"), method="CONNECT", url="tcp://evil.test:443", decision=NO)
    assert 1000 <= len(heard.records) < 2000 and len(heard.events) == len(heard.records)
    reporter.report(Destination("good.test", 443, "dns"), method="CONNECT", url="tcp://good.test:443", decision=YES)
    assert heard.records[-1]["result"] == "allowed"


def test_a_record_that_fails_is_reported_and_stops_nothing() -> None:
    def fail(*words: object, **more: object) -> None:
        raise OSError("disk full")

    GateReporter(lambda event: None, fail).broke(ValueError("x"))
