"""The record: nothing is lost, nothing is changed unseen, nobody else can read it."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.audit.chain import opened
from sandbox.audit.entry import SEVERITIES, TYPES, plain, text
from sandbox.audit.reading import entries, files, verify
from sandbox.audit.record import Record
from sandbox.errors import SandboxError


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "audit"


def fill(directory: Path, count: int = 10, **settings: int) -> None:
    record = Record(str(directory), sandbox="vm-1", **settings)  # type: ignore[arg-type]
    for number in range(count):
        record.write("policy_decision", f"entry {number}")
    record.close()


def rewrite(file: Path, change: object) -> None:
    lines = file.read_text().splitlines(keepends=True)
    change(lines)  # type: ignore[operator]
    file.write_text("".join(lines))


def test_an_access_carries_both_seeds_shapes(directory: Path) -> None:
    record = Record(str(directory), sandbox="vm-0a", agent="code-architect")
    record.write(
        "policy_decision",
        "read ./.env",
        severity="warn",
        metadata={"size": 3, "late": False, "who": None, "ratio": 0.5},
        trace_id="t-1",
        operation="read",
        target="./.env",
        result="blocked",
        policy="sensitive-file-pattern",
        reason="Matches blocked pattern: **/.env*",
        sync=True,
    )
    (found,) = entries(str(directory))
    assert {name: found[name] for name in ("agent", "operation", "target", "result", "policy", "reason")} == {
        "agent": "code-architect",
        "operation": "read",
        "target": "./.env",
        "result": "blocked",
        "policy": "sensitive-file-pattern",
        "reason": "Matches blocked pattern: **/.env*",
    }
    assert found["timestamp"].endswith("Z")
    assert (found["type"], found["severity"], found["traceId"]) == ("policy_decision", "warn", "t-1")
    assert found["metadata"] == {"size": 3, "late": False, "who": None, "ratio": 0.5}
    assert found["sandbox"] == "vm-0a"


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_all_twelve_types_and_four_severities(directory: Path, type: str, severity: str) -> None:
    assert len(TYPES) == 12
    Record(str(directory)).write(type, "x", severity=severity)
    assert next(entries(str(directory)))["type"] == type


def test_words_the_record_does_not_know_are_refused(directory: Path) -> None:
    record = Record(str(directory))
    for wrong in ({"type": "x"}, {"severity": "bad"}, {"result": "maybe"}):
        with pytest.raises(SandboxError):
            record.write(**{"type": "policy_decision", "summary": "s", **wrong})  # type: ignore[arg-type]


def test_only_its_owner_can_read_it(directory: Path) -> None:
    fill(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for file in directory.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_sound_record_verifies(directory: Path) -> None:
    fill(directory, 100)
    assert verify(str(directory))
    assert verify(str(directory)).count == 100


def test_no_record_at_all_verifies(directory: Path) -> None:
    assert verify(str(directory)).count == 0


@pytest.mark.parametrize(
    ("change", "line", "problem"),
    [
        (lambda lines: lines.__setitem__(4, lines[4].replace("entry 4", "entry X")), 5, "altered"),
        (lambda lines: lines.__delitem__(4), 5, "missing"),
        (lambda lines: lines.__setitem__(slice(3, 5), [lines[4], lines[3]]), 4, "missing"),
        (lambda lines: lines.insert(4, lines[2]), 5, "out of order"),
        (lambda lines: lines.insert(4, "{}\n"), 5, "the line was altered"),
        (lambda lines: lines.__delitem__(slice(0, 2)), 1, "missing"),
        (lambda lines: lines.__delitem__(slice(8, 10)), 9, "the end is missing: lines 9 to 10"),
        (lambda lines: lines.__setitem__(4, lines[4].replace('"hash":"', '"hash":"0')), 5, "the line was altered"),
    ],
)
def test_the_first_changed_line_is_found(directory: Path, change: object, line: int, problem: str) -> None:
    fill(directory)
    rewrite(directory / "audit.jsonl", change)
    verdict = verify(str(directory))
    assert not verdict
    assert verdict.line == line
    assert problem in verdict.problem


def test_rotation_keeps_the_chain(directory: Path) -> None:
    fill(directory, 200, rotate_size=4096)
    assert len(files(str(directory))) > 3
    assert verify(str(directory)).count == 200
    os.unlink(files(str(directory))[1])
    assert "missing" in verify(str(directory)).problem


def test_a_line_torn_by_a_crash_is_repaired_and_nothing_before_it_is_lost(directory: Path) -> None:
    fill(directory, 5)
    log = directory / "audit.jsonl"
    with log.open("a") as file:
        file.write('{"timestamp":"2026-01-28T10:')
    assert not verify(str(directory))
    fill(directory, 1)
    assert verify(str(directory))
    assert [one["summary"] for one in entries(str(directory))] == [
        *(f"entry {number}" for number in range(5)),
        "a line torn by a crash was removed (28 bytes)",
        "entry 0",
    ]


def test_a_crash_between_line_and_head_loses_nothing(directory: Path) -> None:
    fill(directory, 5)
    head = (directory / "head").read_bytes()
    fill(directory, 2)
    (directory / "head").write_bytes(head)
    fill(directory, 1)
    assert verify(str(directory)).count == 8


@pytest.mark.parametrize("head", [b"", b"garbage", b"\0" * 128])
def test_a_lost_head_is_made_again_from_the_record(directory: Path, head: bytes) -> None:
    fill(directory, 5)
    (directory / "head").write_bytes(head)
    fill(directory, 1)
    assert verify(str(directory)).count == 7
    assert [(one["severity"], one["summary"]) for one in entries(str(directory))][5:] == [
        ("critical", "the head of the record was missing or damaged"),
        ("info", "entry 0"),
    ]


def test_a_record_that_was_cut_short_says_so_and_continues(directory: Path) -> None:
    fill(directory, 5)
    log = directory / "audit.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:3]))
    fill(directory, 1)
    assert any(one["severity"] == "critical" for one in entries(str(directory)))
    assert verify(str(directory)).line == 4


def test_a_record_that_was_cut_within_a_line_says_so_on_a_line_of_its_own(directory: Path) -> None:
    fill(directory, 5)
    log = directory / "audit.jsonl"
    os.truncate(log, log.stat().st_size - 10)
    fill(directory, 1)
    assert "the record was cut short" in [one["summary"] for one in entries(str(directory))]
    assert not verify(str(directory))


@pytest.mark.parametrize("rotates", [False, True])
def test_a_file_that_cannot_be_opened_leaves_the_old_one_open(
    directory: Path, monkeypatch: pytest.MonkeyPatch, rotates: bool
) -> None:
    record = Record(str(directory), rotate_size=1 if rotates else 2**20)
    if rotates:
        record.write("policy_decision", "first")

    def full(*_: object) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as broken, pytest.raises(SandboxError, match="Too many open files"):
        broken.setattr(record, "_open_file", full)
        record.write("policy_decision", "lost")
    record.write("policy_decision", "last")
    record.close()
    assert [one["summary"] for one in entries(str(directory))] == ["first"] * rotates + ["last"]
    assert verify(str(directory))


def test_what_somebody_else_wrote_into_it_stays_and_is_pointed_at(directory: Path) -> None:
    fill(directory, 3)
    with (directory / "audit.jsonl").open("a") as file:
        file.write('{"forged": true}\n')
    fill(directory, 1)
    assert "forged" in (directory / "audit.jsonl").read_text()
    assert verify(str(directory)).line == 4


def _write_many(directory: str, name: str) -> None:
    record = Record(directory, sandbox=name, rotate_size=20_000)
    for number in range(200):
        record.write("policy_decision", f"{name} {number}")


def test_concurrent_sandboxes_write_safely(directory: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(str(directory), f"vm-{n}")) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert verify(str(directory)).count == 800
    for n in range(4):
        own = [one["summary"] for one in entries(str(directory)) if one["sandbox"] == f"vm-{n}"]
        assert own == [f"vm-{n} {number}" for number in range(200)]


def test_a_forked_child_continues_writing_the_same_record(directory: Path) -> None:
    record = Record(str(directory))
    record.write("policy_decision", "parent")
    child = os.fork()
    if child == 0:
        for _ in range(50):
            record.write("policy_decision", "child")
        os._exit(0)
    for _ in range(50):
        record.write("policy_decision", "parent")
    os.waitpid(child, 0)
    assert verify(str(directory)).count == 101


def test_a_link_planted_under_its_name_is_not_followed(directory: Path, tmp_path: Path) -> None:
    directory.mkdir()
    (tmp_path / "victim").write_text("precious")
    (directory / "audit.jsonl").symlink_to(tmp_path / "victim")
    with pytest.raises(SandboxError, match="cannot open the record"):
        Record(str(directory))
    assert (tmp_path / "victim").read_text() == "precious"


@given(st.text(), st.text())
def test_no_text_can_break_out_of_its_line(summary: str, target: str) -> None:
    from sandbox.audit.chain import FIRST, sealed
    from sandbox.audit.entry import line

    made, digest = sealed(line({"summary": summary, "target": target}, {summary: target}), 1, FIRST)
    assert made.count("\n") == 1
    assert made.isascii()
    found = opened(made)
    assert found is not None
    assert found[2] == digest
    if len(summary) <= 4096:
        assert json.loads(made)["summary"] == summary


@given(st.floats() | st.integers() | st.booleans() | st.none() | st.text())
def test_every_metadata_value_is_json(value: float | str | None) -> None:
    json.loads(plain(value), parse_constant=lambda _: pytest.fail("not JSON"))


def test_a_hostile_name_cannot_fill_the_disk() -> None:
    assert len(text("x" * 10**6)) < 5000


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_reading_a_record_that_somebody_filled_with_anything_never_fails(lines: list[bytes]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        Path(place, "audit.jsonl").write_bytes(b"\n".join(lines))
        list(entries(place))
        verify(place)
        record = Record(place)
        record.write("policy_decision", "still writing")
        record.close()
