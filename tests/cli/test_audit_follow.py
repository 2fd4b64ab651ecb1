"""`sandbox audit --follow`: the record as it grows."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.audit.record import Record
from tests.sandboxes import Command, program


@contextmanager
def following(home: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command, once it follows."""
    write(home, 1)
    command = [*program(), "audit", "--follow", "--json", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["summary"] == "entry 0"
        yield process
        process.kill()


def write(home: Path, count: int, *, severity: str = "warn", rotate_size: int = 2**20) -> None:
    record = Record(str(home / "audit"), sandbox="vm-aaaaaaaa", rotate_size=rotate_size)
    for number in range(count):
        record.write("policy_decision", f"entry {number}", severity=severity)
    record.close()


def test_what_others_write_is_printed_as_it_comes_also_over_new_files_and_nothing_twice(home: Path) -> None:
    with following(home, "--severity", "warn") as process:
        write(home, 5, severity="info")  # not asked for
        write(home, 200, rotate_size=8_000)
        assert len(list((home / "audit").glob("audit-*.jsonl"))) > 1
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline()) for _ in range(200)]
        assert [one["summary"] for one in seen] == [f"entry {number}" for number in range(200)]
        write(home, 1)
        assert json.loads(process.stdout.readline())["seq"] == seen[-1]["seq"] + 1


def test_a_command_is_printed_while_the_record_is_followed_and_ctrl_c_ends_it(cli: Command, home: Path) -> None:
    with following(home) as process:
        assert cli("run", "--", "true").returncode == 0
        assert process.stdout is not None
        while json.loads(process.stdout.readline()).get("operation") != "exec":
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_a_reader_that_has_seen_enough_ends_it_without_a_message(home: Path) -> None:
    with following(home) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        write(home, 2)
        process.wait(60)
        assert process.stderr.read() == ""
