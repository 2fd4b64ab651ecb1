"""Sandboxes that are built ahead: handed out once, working, and none left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from sandbox import InvalidArgument, Pool, SandboxClosed, kill_sandbox
from sandbox.errors import ConfigError
from sandbox.guards.late_masks import LateMasks
from tests.pool.waiting import running, until, waiting

pytestmark = pytest.mark.walls


def test_a_sandbox_that_is_ready_is_handed_out_and_never_again(home: Path) -> None:
    with Pool(size=2) as pool:
        assert pool.fill(60)
        ready = {one.id for one in waiting(pool)}
        first = pool.get()
        assert first.id in ready
        first.exec("touch /tmp/mine", check=True)
        first.close()
        seen = {first.id}
        for _ in range(3):
            with pool.get() as another:
                assert another.id not in seen
                assert another.exec("test -e /tmp/mine").exit_code == 1
                seen.add(another.id)
    assert not running(home)


def test_the_pool_fills_up_again_by_itself(home: Path) -> None:
    with Pool(size=2) as pool:
        pool.fill(60)
        with pool.get(), pool.get():
            assert pool.fill(60)
            stats = pool.stats()
            assert (stats.ready, stats.handed_out, stats.empty, stats.problem) == (2, 2, 0, "")


def test_an_empty_pool_builds_one_on_request(home: Path) -> None:
    with Pool(size=1) as pool:
        taken = [pool.get() for _ in range(4)]
        assert [one.exec("echo here").stdout for one in taken] == ["here\n"] * 4
        for one in taken:
            one.close()


def test_closing_a_pool_ends_those_that_wait_and_leaves_the_others(home: Path) -> None:
    pool = Pool(size=2)
    pool.fill(60)
    sandbox = pool.get()
    pool.close()
    pool.close()
    assert running(home) == {sandbox.id}
    assert sandbox.exec("echo still here").stdout == "still here\n"
    sandbox.close()
    with pytest.raises(SandboxClosed, match="the pool is closed"):
        pool.get()


def test_one_that_died_while_it_waited_is_not_handed_out(home: Path) -> None:
    with Pool(size=1) as pool:
        pool.fill(60)
        [dead] = waiting(pool)
        assert dead._running.pid is not None
        os.kill(dead._running.pid, signal.SIGKILL)
        until(lambda: not dead._running.alive())
        with pool.get() as sandbox:
            assert sandbox.id != dead.id
            assert sandbox.exec("echo alive").stdout == "alive\n"
        assert pool.stats().unhealthy == 1


def test_one_whose_guards_cannot_catch_up_is_ended_and_not_handed_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(seconds: float) -> None:
        raise OSError("no memory")

    with Pool(size=1) as pool:
        pool.fill(60)
        [behind] = waiting(pool)
        monkeypatch.setattr(behind._guard, "catch_up", fails)
        with pytest.raises(OSError, match="no memory"):
            pool.get()
        until(lambda: behind.id not in running(home))
        with pool.get() as sandbox:
            assert sandbox.id != behind.id


def test_one_whose_guards_do_not_catch_up_in_time_is_replaced(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.pool.ready.CATCHING_UP", 0.05)
    go_on = Event()
    look_at = LateMasks._look_at
    with Pool({"filesystem": {"root": str(project)}}, size=1) as pool:
        pool.fill(60)
        [behind] = waiting(pool)
        assert behind._guard.wait_until_watching(60)
        monkeypatch.setattr(LateMasks, "_look_at", lambda *given: go_on.wait(60) and look_at(*given))
        (project / "a.pem").write_text("not for tenants")
        with pool.get() as sandbox:
            assert sandbox.id != behind.id
            assert sandbox.exec("cat a.pem").stdout == ""
        go_on.set()
        assert pool.stats().unhealthy == 1


def test_one_that_its_owner_killed_is_not_handed_out(home: Path) -> None:
    with Pool(size=1) as pool:
        pool.fill(60)
        [killed] = waiting(pool)
        kill_sandbox(killed.id)
        with pool.get() as sandbox:
            assert sandbox.id != killed.id


def test_one_in_which_no_command_runs_any_more_is_replaced(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Pool(size=1) as pool:
        pool.fill(60)
        [sick] = waiting(pool)
        sick.pause()  # no command runs in it, and its guest still answers
        with monkeypatch.context() as at_once:
            at_once.setattr("sandbox.pool.shelf.CHECK_EVERY", 0.0)
            pool._shelf.wake()
            until(lambda: pool.stats().unhealthy)
        with pool.get() as sandbox:
            assert sandbox.id != sick.id


def test_one_that_has_waited_for_too_long_is_replaced(home: Path) -> None:
    with Pool(size=1, max_age=0.01) as pool:
        until(lambda: pool.stats().aged > 1)
        with pool.get() as sandbox:
            assert sandbox.exec("echo new").stdout == "new\n"


def test_a_blocked_file_that_is_made_before_the_hand_out_is_hidden_from_the_first_command_on(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.pool.ready.CATCHING_UP", 60.0)
    with Pool({"filesystem": {"root": str(project)}}, size=3) as pool:
        for number in range(6):
            assert pool.fill(60)
            (project / f"{number}.pem").write_text("not for tenants")
            with pool.get() as sandbox:
                assert sandbox.exec(f"cat {number}.pem").stdout == ""


def test_its_lifetime_begins_when_it_is_handed_out(home: Path) -> None:
    with Pool({"limits": {"lifetime": "1h", "idle_timeout": "10m"}}, size=1) as pool:
        pool.fill(60)
        assert waiting(pool)[0].stats().lifetime_left is None
        with pool.get() as sandbox:
            assert sandbox.stats().lifetime_left is not None


def test_what_cannot_be_built_is_an_error_for_the_caller(home: Path, project: Path) -> None:
    with Pool({"filesystem": {"root": str(project / "missing")}}, size=1) as pool:
        with pytest.raises(ConfigError, match="missing"):
            pool.fill(60)
        with pytest.raises(ConfigError, match="missing"):
            pool.get()
        assert "missing" in pool.stats().problem
        (project / "missing").mkdir()
        with pool.get() as sandbox:
            assert sandbox.exec("true").ok
    assert not running(home)


@pytest.mark.parametrize("given", [{"size": 0}, {"size": True}, {"max_age": -1}])
def test_nonsense_is_refused_before_anything_is_built(home: Path, given: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        Pool(**given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        Pool({"filesystm": {}})


def test_a_program_that_forgets_its_pool_leaves_nothing(home: Path) -> None:
    script = "from sandbox import Pool\npool = Pool(size=2)\npool.fill(60)\nprint(pool.get().id)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == ""
    from sandbox.registry.registry import entries

    assert not [one for one in entries(str(home)) if one.running]


def test_a_pool_that_is_dropped_ends_what_waits_in_it(home: Path) -> None:
    pool = Pool(size=2)
    pool.fill(60)
    del pool
    until(lambda: not running(home))


def test_a_forked_process_gets_nothing_from_its_parents_pool(home: Path) -> None:
    with Pool(size=1) as pool:
        pool.fill(60)
        owner, pool._owner = pool._owner, 1  # as a fork sees it
        with pytest.raises(InvalidArgument, match="belongs to the process that made it"):
            pool.get()
        pool._owner = owner
