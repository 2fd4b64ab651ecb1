"""The record over HTTP: queries, a stream that resumes, the specification's feed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.audit.record import Record
from tests.server.serving import Served


@contextmanager
def following(served: Served, last: int | None = None, query: str = "", client: Any = None) -> Iterator[Iterator[Any]]:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with (client or served.http).stream("GET", f"/v1/audit/stream{query}", headers=headers) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        assert next(lines).startswith(":")  # subscribed

        def entries() -> Iterator[Any]:
            number = 0
            for line in lines:
                if line.startswith("id: "):
                    number = int(line[4:])
                elif line.startswith("data: "):
                    entry = json.loads(line[6:])
                    assert entry["seq"] == number
                    yield entry

        yield entries()


def write(served: Served, count: int, sandbox: str = "vm-written", **more: Any) -> None:
    record = Record(str(served.home / "audit"), sandbox=sandbox, rotate_size=more.pop("rotate_size", 64 * 2**20))
    for number in range(count):
        record.write("policy_decision", f"entry {number}", **{"severity": "info", **more})
    record.close()


def last(served: Served) -> int:
    return int(served.http.get("/v1/audit?limit=1").json()["last"])


def test_what_any_process_writes_is_streamed_as_it_comes(served: Served) -> None:
    with following(served) as entries:
        write(served, 3)
        assert [next(entries)["summary"] for _ in range(3)] == ["entry 0", "entry 1", "entry 2"]


def test_a_stream_resumes_after_the_last_entry_without_loss_or_repetition(served: Served) -> None:
    with following(served) as entries:
        write(served, 5)
        seen = [next(entries)["seq"] for _ in range(2)]
    write(served, 5)  # while nobody listens
    with following(served, seen[-1]) as entries:
        write(served, 5)
        seen += [next(entries)["seq"] for _ in range(13)]
    assert seen == list(range(seen[0], seen[0] + 15))


def test_rotation_loses_nothing(served: Served) -> None:
    write(served, 1)
    start = last(served)
    with following(served, start) as entries:
        write(served, 300, rotate_size=20_000)
        seen = [next(entries)["seq"] for _ in range(300)]
    assert seen == list(range(seen[0], seen[0] + 300))
    with following(served, seen[0] - 1) as entries:
        assert [next(entries)["seq"] for _ in range(300)] == seen


def test_a_last_event_id_of_zero_brings_the_record_from_its_first_entry_on(served: Served) -> None:
    write(served, 1)
    with following(served, 0) as entries:
        assert [next(entries)["seq"] for _ in range(last(served))] == list(range(1, last(served) + 1))


def test_a_last_event_id_of_a_record_that_is_gone_brings_this_one_from_its_first_entry_on(served: Served) -> None:
    write(served, 1)
    with following(served, last(served) + 1000) as entries:
        assert [next(entries)["seq"] for _ in range(last(served))] == list(range(1, last(served) + 1))


@pytest.mark.parametrize("wrong", ["x", "-1", "1e3", "9" * 30, "²"])
def test_a_last_event_id_that_is_not_a_number_is_400(served: Served, wrong: str) -> None:
    answer = served.http.get("/v1/audit/stream", headers={b"Last-Event-ID": wrong.encode()})
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == "Last-Event-ID"


def test_filters_hold_for_the_stream_and_the_query(served: Served) -> None:
    start = last(served)
    write(served, 1, "vm-aaaaaaaa", severity="info", target="one")
    write(served, 1, "vm-bbbbbbbb", severity="error", target="Two", result="blocked")
    write(served, 1, "vm-bbbbbbbb", severity="critical", target="three")
    for query, expected in (
        ("sandbox=vm-aaaaaaaa", ["one"]),
        ("severity=error", ["Two", "three"]),
        ("text=two", ["Two"]),
        ("result=blocked", ["Two"]),
        ("type=policy_decision", ["one", "Two", "three"]),
    ):
        found = served.http.get(f"/v1/audit?{query}&after={start}").json()["entries"]
        assert [one["target"] for one in found] == expected, query
        with following(served, start, f"?{query}") as entries:
            assert [next(entries)["target"] for _ in expected] == expected
    for query in (
        "type=nothing",
        "severity=high",
        "limit=0",
        "limit=1001",
        "since=yesterday",
        "result=maybe",
        "after=-1",
    ):
        answer = served.http.get(f"/v1/audit?{query}")
        assert answer.status_code == 400, query
        assert answer.json()["error"]["field"] == query.partition("=")[0]


def test_a_token_for_one_sandbox_follows_that_one_alone(served: Served) -> None:
    start = last(served)
    write(served, 1, "vm-cccccccc", target="other")
    write(served, 1, "vm-dddddddd", target="mine")
    with served.limited("audit", sandboxes=["vm-dddddddd"]) as client, following(served, start, "", client) as entries:
        assert next(entries)["target"] == "mine"


def test_api_audit_feed(served: Served) -> None:
    write(served, 3, severity="warn")
    said = served.http.get("/api/audit/feed", params={"severity": "warn", "limit": 2}).json()
    assert set(said) == {"entries", "totalBuffered", "replayed"}
    assert [one["summary"] for one in said["entries"]] == ["entry 1", "entry 2"]
    assert said["totalBuffered"] >= 3 and said["replayed"] is False
    stamp = said["entries"][0]["timestamp"]
    assert len(served.http.get("/api/audit/feed", params={"since": stamp}).json()["entries"]) >= 2
    assert served.http.get("/api/audit/feed", params={"sinceMs": 2**50}).json()["entries"] == []
    for wrong in ({"limit": 0}, {"limit": 1001}, {"type": "x"}, {"severity": "x"}, {"sinceMs": "x"}, {"since": "x"}):
        answer = served.http.get("/api/audit/feed", params=wrong)
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, next(iter(wrong)))


def test_the_record_is_verified_and_a_changed_line_found(served: Served) -> None:
    assert served.http.get("/v1/audit/verify").json()["intact"] is True
    file = served.home / "audit" / "audit.jsonl"
    text = file.read_text()
    file.write_text(text.replace("entry 1", "entry X", 1))
    said = served.http.get("/v1/audit/verify").json()
    assert said["intact"] is False and said["line"] > 0
    file.write_text(text)


def test_the_record_is_exported_as_json_lines_and_as_opentelemetry_logs(served: Served) -> None:
    write(served, 450, "vm-eeeeeeee", target="exported.example")
    query = {"text": "EXPORTED.example", "sandbox": "vm-eeeeeeee"}
    answer = served.http.get("/v1/audit/export", params=query)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [one["summary"] for one in lines] == [f"entry {number}" for number in range(450)]
    logs = [
        json.loads(line)
        for line in served.http.get("/v1/audit/export", params={**query, "format": "otlp"}).iter_lines()
    ]
    records = [one for log in logs for one in log["resourceLogs"][0]["scopeLogs"][0]["logRecords"]]
    assert [one["body"]["stringValue"] for one in records] == [f"entry {number}" for number in range(450)]
    assert served.http.get("/v1/audit/export?format=xml").status_code == 400
    with served.limited("audit", sandboxes=["vm-ffffffff"]) as other:
        assert other.get("/v1/audit/export").text == ""


def test_a_stream_resumes_over_a_restart_of_the_server_without_loss_or_repetition(tmp_path: Path) -> None:
    first = Served(tmp_path / "home", cwd=tmp_path)
    with following(first) as entries:
        write(first, 5)
        seen = [next(entries)["seq"] for _ in range(3)]
    first.end(signal.SIGKILL)
    write(first, 4)  # while no server is there
    second = Served(tmp_path / "home", cwd=tmp_path)
    try:
        with following(second, seen[-1]) as entries:
            write(second, 2)
            seen += [next(entries)["seq"] for _ in range(8)]
    finally:
        second.end()
    assert seen == list(range(seen[0], seen[0] + 11))
