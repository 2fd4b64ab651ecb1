"""SIGKILL to the owner of a sandbox with a writable project: git of the host runs nothing of its tenants' afterwards.

Nobody else starts, prunes or repairs anything: a process that the owner left behind does.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.guards.standby import Standing
from tests.patience import until
from tests.sandboxes import program
from tests.security.test_git_ways import WAYS, Person, Way
from tests.security.test_killed_owners import descendants

pytestmark = pytest.mark.walls

STANDBY = b"sandbox-standby"
PICKED = ["fsmonitor of a gitlink", "hooks/pre-commit", "hooksPath", "worktreeConfig"]
SOME = [next(way for way in WAYS if way.name == name) for name in PICKED]


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "own"))
    return Person(tmp_path, monkeypatch, Way("", ""))


def standbys(owner: int) -> list[int]:
    return [pid for pid in descendants(owner) if pid != owner and STANDBY in cmdline(pid)]


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def waited_for(pids: list[int]) -> Iterator[None]:
    """At the end, waits for each of these processes, which are ours to see and nobody's to reap, to be gone."""
    descriptors = [os.pidfd_open(pid) for pid in pids]
    try:
        yield
        for descriptor in descriptors:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            assert poll.poll(60_000)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def kill_when_planted(owner: subprocess.Popen[str], person: Person) -> None:
    """Kills the owner when a tenant has planted something, and waits for all that it had started. It is stopped before,
    so that its watch does not undo it first."""
    assert owner.stdin is not None
    until(lambda: standbys(owner.pid))
    os.kill(owner.pid, signal.SIGSTOP)
    owner.stdin.write("go\n")
    owner.stdin.flush()
    until((person.project / "planted").exists)
    with waited_for([pid for pid in descendants(owner.pid) if pid != owner.pid]):
        owner.kill()
        owner.wait()


@pytest.mark.parametrize("way", SOME, ids=PICKED)
def test_what_tenants_of_a_killed_owner_planted_does_not_run(way: Way, person: Person) -> None:
    script = f"read go; {person.filled(way.plant)}; touch planted; exec sleep 1000"
    command = [*program(), "run", "--", "sh", "-c", script]
    with subprocess.Popen(command, cwd=person.project, stdin=subprocess.PIPE, text=True) as owner:
        kill_when_planted(owner, person)
    person.does_the_usual(way)
    assert not person.mark.exists()
    told = subprocess.run([*program(), "audit"], capture_output=True, text=True, check=True).stdout
    assert any("blocked" in line and f"undo {person.project}/lib" in line for line in told.splitlines()), told


def test_the_person_is_told_when_there_can_be_no_such_process(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(Standing, "__init__", fails)
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        assert sandbox._guard.wait_until_watching(60)
        (notice,) = [one for one in sandbox.notices if "if this process is killed" in one]
        assert "Resource temporarily unavailable" in notice


def test_an_owner_that_ends_in_order_leaves_no_process(person: Person) -> None:
    command = [*program(), "run", "--", "sh", "-c", "read go"]
    with subprocess.Popen(command, cwd=person.project, stdin=subprocess.PIPE, text=True) as owner:
        (standby,) = until(lambda: standbys(owner.pid))
        with waited_for([standby]):
            owner.communicate("go\n")
    assert owner.returncode == 0
    assert sys.executable.encode() not in cmdline(standby)
