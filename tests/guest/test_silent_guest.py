"""A framed guest that stops answering, as root of a machine can make its own: nobody waits for it without end."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator

import pytest

from sandbox.errors import CommandError, GuestError
from sandbox.guest import bridge_jobs
from sandbox.guest.deadlines import Deadlines
from tests.guest.driver import WAIT
from tests.guest.test_hostile_guest import CREDIT, EXIT, STARTED, Liar


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Liar]:
    """A guest that has little time."""
    made = Liar()
    monkeypatch.setattr(bridge_jobs, "ANSWER_MOST", 0.05)
    monkeypatch.setattr(bridge_jobs, "END_MOST", 0.05)
    yield made
    made.close()


def test_a_file_operation_that_is_not_answered_fails_and_its_late_answer_is_no_offence(silent: Liar) -> None:
    with pytest.raises(OSError) as failed:
        silent.guest.file("stat", b"/x")
    assert failed.value.errno == errno.ETIMEDOUT
    asked, cancelled = silent.stream.receive(), silent.stream.receive()
    assert (asked["t"], cancelled["t"], asked["id"]) == ("file", "cancel", cancelled["id"])
    silent.say(id=asked["id"], t="done", mode=0, size=0, mtime_ns=0)
    process, number = silent.start()
    silent.say(id=number, **STARTED)
    silent.say(id=number, **EXIT)
    with process:
        assert process.wait(WAIT).exit_code == 0


def test_a_command_that_never_starts_fails(silent: Liar) -> None:
    process, _ = silent.start()
    with process, pytest.raises(CommandError):
        process.wait(WAIT)


def test_a_command_that_goes_on_beyond_its_timeout_ends_the_connection(silent: Liar) -> None:
    ends = [os.pipe() for _ in range(3)]
    request: dict[str, object] = {"argv": [b"x"], "cwd": b"/", "timeout_ms": 1}
    with silent.guest.start(request, "x", [one[0] for one in ends]) as process:
        silent.say(id=silent.stream.receive()["id"], **STARTED)
        with pytest.raises(GuestError):
            process.wait(WAIT)
    for end in (fd for pair in ends for fd in pair):
        os.close(end)


def test_a_command_whose_output_its_owner_has_not_read_yet_is_given_time(silent: Liar) -> None:
    ends = [os.pipe() for _ in range(3)]
    request: dict[str, object] = {"argv": [b"x"], "cwd": b"/", "timeout_ms": 1}
    with silent.guest.start(request, "x", [ends[0][0], ends[1][1], ends[2][1]]) as process:
        for end in (ends[0][0], ends[1][1], ends[2][1]):
            os.close(end)
        process.stdin, process.stdout, process.stderr = ends[0][1], ends[1][0], ends[2][0]
        number = silent.stream.receive()["id"]
        silent.say(id=number, **STARTED)
        for _ in range(4):
            silent.say(id=number, t="out", fd=1, data=b"x" * (CREDIT // 4))
        for _ in range(3):
            with pytest.raises(OSError):  # a little later
                silent.guest.file("stat", b"/x")
        silent.say(id=number, **EXIT)
        assert len(process.wait(WAIT).stdout) == CREDIT


def test_a_command_without_a_timeout_takes_as_long_as_it_likes(silent: Liar) -> None:
    process, number = silent.start()
    silent.say(id=number, **STARTED)
    process.wait_started()
    with pytest.raises(OSError):  # by then a deadline of the command's would have passed as well
        silent.guest.file("stat", b"/x")
    silent.say(id=number, **EXIT)
    with process:
        assert process.wait(WAIT).exit_code == 0


def test_no_deadline_comes_nearer_while_the_machine_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.stop()
    now = 500.0
    deadlines.set("b", 20)
    assert (deadlines.left(), deadlines.passed()) == (None, [])
    deadlines.go()
    assert deadlines.left() == 10
    now = 515.0
    assert (deadlines.passed(), deadlines.passed(), deadlines.left()) == (["a"], [], 5)
