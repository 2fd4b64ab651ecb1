"""Records of other machines: verified as they arrive, and nothing is lost when who keeps them is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.audit.following import Following
from sandbox.audit.received import ReceivedRecords
from sandbox.audit.record import Record
from sandbox.errors import InvalidArgument


def written(directory: Path, count: int, rotate_size: int = 2**20) -> Record:
    record = Record(str(directory), sandbox="vm-1", rotate_size=rotate_size)
    for number in range(count):
        record.write("sandbox_lifecycle", f"entry {number}")
    return record


def whole(directory: Path) -> bytes:
    names = sorted(name for name in os.listdir(directory) if name.startswith("audit-"))
    return b"".join((directory / name).read_bytes() for name in (*names, "audit.jsonl"))


def test_what_is_written_is_followed_across_files_and_none_comes_twice(tmp_path: Path) -> None:
    record = written(tmp_path / "node", 40, rotate_size=2000)
    following = Following(str(tmp_path / "node"))
    got = b""
    while piece := following.lines(500):
        got += piece
    for _ in range(30):
        record.write("sandbox_lifecycle", "later")
        got += following.lines(500)
    while piece := following.lines(500):
        got += piece
    assert got == whole(tmp_path / "node")
    assert Following(str(tmp_path / "node"), 65).lines() == b"".join(got.splitlines(keepends=True)[65:])


def test_half_a_line_is_not_sent(tmp_path: Path) -> None:
    written(tmp_path / "node", 2)
    with open(tmp_path / "node/audit.jsonl", "ab") as file:
        file.write(b'{"timestamp":')
    assert Following(str(tmp_path / "node")).lines().count(b"\n") == 2


def test_a_kept_record_is_the_same_and_verifies(tmp_path: Path) -> None:
    written(tmp_path / "node", 10)
    kept, lines = ReceivedRecords(str(tmp_path / "kept")), whole(tmp_path / "node")
    assert kept.take("abc", lines) == 10
    assert kept.take("abc", lines) == 10  # sent twice, kept once
    assert (tmp_path / "kept/abc/audit.jsonl").read_bytes() == lines
    assert kept.verified("abc") and kept.chains() == ["abc"] and kept.problem("abc") == ""


@pytest.mark.parametrize("change", ["altered", "missing", "moved", "rewritten"])
def test_a_line_that_does_not_belong_there_is_refused_and_what_came_before_stays(tmp_path: Path, change: str) -> None:
    written(tmp_path / "node", 10)
    lines = whole(tmp_path / "node").splitlines(keepends=True)
    kept = ReceivedRecords(str(tmp_path / "kept"))
    if change == "altered":
        lines[5] = lines[5].replace(b"entry 5", b"entry 6")
    elif change == "missing":
        del lines[5]
    elif change == "moved":
        lines[5], lines[6] = lines[6], lines[5]
    else:  # the whole record was made anew, after half of it had been sent
        kept.take("abc", b"".join(lines[:5]))
        written(tmp_path / "other", 10)
        lines = whole(tmp_path / "other").splitlines(keepends=True)[4:]
    with pytest.raises(InvalidArgument):
        kept.take("abc", b"".join(lines))
    assert kept.number("abc") == 5 and kept.verified("abc").count == 5 and kept.verified("abc")
    assert kept.problem("abc")


def test_killed_after_any_byte_it_continues_where_it_was(tmp_path: Path) -> None:
    written(tmp_path / "node", 6)
    lines = whole(tmp_path / "node")
    first = b"".join(lines.splitlines(keepends=True)[:2])
    kept = ReceivedRecords(str(tmp_path / "kept"))
    kept.take("abc", first)
    for cut in range(len(first), len(lines) + 1):  # the lines were written so far, and the head was not
        shutil.copytree(tmp_path / "kept/abc", tmp_path / f"kept/c{cut}")
        with open(tmp_path / f"kept/c{cut}/audit.jsonl", "r+b") as file:
            file.write(lines[:cut])
        assert kept.number(f"c{cut}") == lines[:cut].count(b"\n")
        following = Following(str(tmp_path / "node"), kept.number(f"c{cut}"))
        assert kept.take(f"c{cut}", following.lines()) == 6
        assert kept.verified(f"c{cut}") and (tmp_path / f"kept/c{cut}/audit.jsonl").read_bytes() == lines


SHIP = """
import sys
from sandbox.audit.following import Following
from sandbox.audit.received import ReceivedRecords
kept = ReceivedRecords(sys.argv[2])
following = Following(sys.argv[1], kept.number("abc"))
while piece := following.lines(1000):
    print(kept.take("abc", piece), flush=True)
"""


def test_a_shipper_that_is_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    written(tmp_path / "node", 400, rotate_size=20_000)
    places = [str(tmp_path / "node"), str(tmp_path / "kept")]
    for turn in range(12):
        with subprocess.Popen([sys.executable, "-c", SHIP, *places], stdout=subprocess.PIPE) as shipper:
            assert shipper.stdout is not None
            for _ in range(turn):
                shipper.stdout.readline()
            shipper.send_signal(signal.SIGKILL)
    subprocess.run([sys.executable, "-c", SHIP, *places], check=True, stdout=subprocess.DEVNULL)
    kept = ReceivedRecords(places[1])
    assert kept.number("abc") == 400 and kept.verified("abc")
    assert (tmp_path / "kept/abc/audit.jsonl").read_bytes() == whole(tmp_path / "node")
