"""`Pool.map`: each item in a sandbox of its own, and nothing left when it ends, however it ends."""

from __future__ import annotations

import gc
import io
import weakref
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest

from sandbox import InvalidArgument, Pool, Sandbox
from sandbox.errors import ConfigError
from sandbox.pool.progress import Bar
from tests.pool.waiting import running, until

pytestmark = pytest.mark.walls


def test_a_command_runs_for_each_item_in_a_sandbox_of_its_own(home: Path) -> None:
    with Pool(size=2) as pool:
        mapped = pool.map('echo "$1"; test ! -e /tmp/x && touch /tmp/x', ["a b", "$(exit 9)", 3])
        outcomes = mapped.results()
    assert [one.item for one in outcomes] == ["a b", "$(exit 9)", 3]
    assert [one.value.stdout for one in outcomes] == ["a b\n", "$(exit 9)\n", "3\n"]
    assert all(one.ok and one.attempts == 1 and one.error is None for one in outcomes)
    assert not running(home)


def test_the_item_is_the_last_argument_of_a_list(home: Path) -> None:
    with Pool(size=1) as pool:
        assert [one.value.stdout for one in pool.map(["printf", "%s"], ["*", ""])] == ["*", ""]


def test_a_function_gets_the_sandbox_and_the_item(home: Path) -> None:
    def double(sandbox: Sandbox, item: int) -> int:
        return int(sandbox.exec(["expr", str(item), "*", "2"], check=True).stdout)

    with Pool(size=2) as pool:
        assert [one.value for one in pool.map(double, range(1, 5), concurrency=3).results()] == [2, 4, 6, 8]


def test_each_failure_has_its_reason_and_spoils_no_other_item(home: Path) -> None:
    def work(sandbox: Sandbox, item: str) -> Any:
        if item == "error":
            raise LookupError("the function's own")
        if item == "lost":
            sandbox.close()
        return sandbox.exec(
            {"failed": "exit 3", "timeout": "sleep 100"}.get(item, "true"), timeout=0.5 if item == "timeout" else None
        )

    with Pool(size=2) as pool:
        found = {one.item: one for one in pool.map(work, ["failed", "timeout", "error", "lost", "fine"])}
    assert {name: one.reason for name, one in found.items()} == {
        "failed": "failed", "timeout": "timeout", "error": "error", "lost": "lost", "fine": ""
    }  # fmt: skip
    assert found["failed"].value.exit_code == 3
    assert isinstance(found["error"].error, LookupError)
    assert found["lost"].attempts == 3 and found["failed"].attempts == 1


def test_an_item_is_tried_again_for_the_reasons_that_were_named(home: Path) -> None:
    tries: list[int] = []

    def work(sandbox: Sandbox, item: int) -> Any:
        tries.append(item)
        return sandbox.exec("true" if len(tries) == 3 else "exit 1")

    with Pool(size=1) as pool:
        [outcome] = pool.map(work, [1], retries={"failed": 5})
        assert outcome.ok and outcome.attempts == 3
        with pytest.raises(InvalidArgument, match="retries are numbers for"):
            pool.map("true", [], retries={"whatever": 1})


def test_each_item_can_be_given_something_of_its_own(home: Path) -> None:
    with Pool(size=2) as pool:
        mapped = pool.map("echo $WHO", ["ann", "bob"], give=lambda item: {"environment": {"WHO": item.upper()}})
        assert [one.value.stdout for one in mapped.results()] == ["ANN\n", "BOB\n"]


def test_cancelling_ends_what_is_under_way_and_keeps_what_is_done(home: Path) -> None:
    with Pool(size=2) as pool:
        pool.fill(60)
        mapped = pool.map('test "$1" = 0 || exec sleep 1000', range(100), concurrency=2)
        for outcome in mapped:
            assert outcome.item == 0
            break
        mapped.cancel()
        outcomes = mapped.outcomes()
        assert outcomes[0].ok and {one.reason for one in outcomes[1:]} <= {"cancelled"}
        assert len(outcomes) < 100
    assert not running(home)


def test_an_error_in_the_loop_over_outcomes_leaves_nothing_when_the_with_is_left(home: Path) -> None:
    with Pool(size=2) as pool:
        with pytest.raises(KeyboardInterrupt), pool.map('test "$1" = 0 || exec sleep 1000', range(10)) as mapped:
            for _ in mapped:
                raise KeyboardInterrupt
        assert all(one.reason == "cancelled" for one in mapped.outcomes()[1:])
    assert not running(home)


def test_not_more_at_a_time_than_was_said(home: Path) -> None:
    lock, most, now, together = Lock(), 0, 0, Event()

    def work(sandbox: Sandbox, item: int) -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
            if now == 2:
                together.set()
        together.wait(60)
        with lock:
            now -= 1

    with Pool(size=4) as pool:
        assert all(one.ok for one in pool.map(work, range(6), concurrency=2))
    assert most == 2


def test_what_makes_every_item_impossible_is_raised(home: Path, project: Path) -> None:
    with Pool(size=1) as pool:
        mapped = pool.map("true", range(100), give={"secrets": {"KEY": {"valeu": "x"}}})
        with pytest.raises(ConfigError, match="unknown key"):
            mapped.results()
    assert not running(home)


def test_an_iterable_that_raises_ends_the_map_with_its_error(home: Path) -> None:
    def items() -> Any:
        yield 1
        raise RuntimeError("no more")

    with Pool(size=1) as pool, pytest.raises(RuntimeError, match="no more"):
        pool.map("true", items()).results()


def test_a_bar_is_shown_on_a_terminal_only(home: Path) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    plain, screen = io.StringIO(), Screen()
    for stream in (plain, screen):
        bar = Bar([1, 2], None, stream=stream)
        bar.done(True)
        bar.done(False)
        bar.close()
        bar.close()
    assert plain.getvalue() == ""
    assert screen.getvalue() != ""


def test_the_pool_serves_others_meanwhile(home: Path) -> None:
    started, go = Event(), Event()

    def work(sandbox: Sandbox, item: int) -> None:
        started.set()
        go.wait(60)

    with Pool(size=1) as pool, pool.map(work, [1]) as mapped:
        started.wait(60)
        with pool.get() as sandbox:
            assert sandbox.exec("echo free").stdout == "free\n"
        go.set()
        assert mapped.results()[0].ok
        until(lambda: pool.stats().ready == 1)


def test_outcomes_of_endless_items_are_not_kept_once_the_loop_has_them(home: Path) -> None:
    class Value:
        pass

    def items() -> Any:
        while True:
            yield 0

    alive: list[weakref.ref[Value]] = []

    def work(sandbox: Sandbox, item: int) -> Value:
        value = Value()
        alive.append(weakref.ref(value))
        return value

    with Pool(size=2) as pool, pool.map(work, items(), concurrency=2) as mapped:
        for number, outcome in enumerate(mapped):
            del outcome
            if number == 60:
                break
        gc.collect()
        left = sum(one() is not None for one in alive)
        assert left <= 30, left  # those that wait for the loop, and those at hand: not all 61


def test_no_further_item_is_begun_while_many_wait_for_the_loop(home: Path) -> None:
    begun: list[int] = []

    def items() -> Any:
        for number in range(1000):
            begun.append(number)
            yield number

    with Pool(size=2) as pool, pool.map(lambda sandbox, item: item, items(), concurrency=2) as mapped:
        until(lambda: len(mapped.outcomes()) >= 16)
        until(lambda: not mapped._under_way)
        assert len(begun) <= 16 + 2
        assert next(iter(mapped)).value in range(18)
        until(lambda: len(mapped.outcomes()) >= 16)


def test_results_of_a_generator_are_whole(home: Path) -> None:
    with Pool(size=2) as pool:
        assert [one.value for one in pool.map(lambda sandbox, item: item, iter(range(40))).results()] == [*range(40)]


def test_cancelling_ends_the_others_when_one_cannot_be_closed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Sandbox] = []
    both = Event()
    close = Sandbox.close

    def broken(sandbox: Sandbox, grace: float = 0.0) -> None:
        close(sandbox, grace)
        if sandbox in started[:1]:
            raise OSError("cannot be closed")

    def work(sandbox: Sandbox, item: int) -> None:
        started.append(sandbox)
        if len(started) == 2:
            both.set()
        sandbox.exec("sleep 1000")

    monkeypatch.setattr(Sandbox, "close", broken)
    with Pool(size=2) as pool:
        mapped = pool.map(work, range(2), concurrency=2)
        both.wait(60)
        with pytest.raises(OSError, match="cannot be closed"):
            mapped.cancel()
        assert not {one.id for one in started} & running(home)
