"""The thread that serves every sandbox of a process goes on, whatever one of them meets."""

from __future__ import annotations

import errno
import socket
from threading import Event

import pytest

from sandbox import readiness
from sandbox.readiness import Later, Watch

PROBLEMS = [OSError(errno.EMFILE, "too many open files"), RuntimeError("can't start new thread")]


@pytest.mark.parametrize("problem", PROBLEMS, ids=["descriptors", "threads"])
def test_what_cannot_be_done_now_is_tried_again(problem: Exception) -> None:
    done, problems = Event(), [problem]

    def ready() -> None:
        if problems:
            raise problems.pop()
        done.set()

    ours, theirs = socket.socketpair()
    with ours, theirs:
        watch = Watch([ours], ready)
        theirs.send(b"x")
        assert done.wait(60)
        watch.cancel()
    done.clear()
    problems.append(problem)
    Later(0, ready)
    assert done.wait(60)


def test_a_mistake_in_one_does_not_end_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    done, told = Event(), Event()
    monkeypatch.setattr(readiness, "_report", told.set)

    def wrong() -> None:
        raise ValueError

    keeps = Later(10_000, done.set)
    Later(0, wrong)
    assert told.wait(60)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Watch([ours], done.set)
        theirs.send(b"x")
        assert done.wait(60)
    keeps.cancel()
