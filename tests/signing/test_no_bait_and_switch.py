"""Each hole of the system that this follows, closed."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import Denied, NotFound
from tests.signing.keys import ETHER, FOE, FRIEND, POLICY, Bench, SetClock, transaction

DEAR: dict[str, Any] = {"value": str(ETHER // 20)}  # it needs a person's approval


def test_the_requester_cannot_approve(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.ask("one", asker="token:1", **DEAR).pending
    with pytest.raises(Denied):
        bench.service.approve("one", approver="token:1")
    assert bench.key.orders == []
    assert bench.service.approve("one", approver="token:2").signature


def test_an_approval_is_for_the_exact_bytes(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    shown = bench.ask("one", **DEAR)
    with pytest.raises(Denied):
        bench.service.approve("one", approver="owner", hash="0x" + "00" * 32)
    result = bench.service.approve("one", approver="owner", hash=shown.hash)
    assert result.signature
    assert [order.request.plain() for order in bench.key.orders] == [transaction(**DEAR)]
    assert {one["metadata"]["hash"] for one in bench.entries()} == {shown.hash}


def test_a_pending_id_cannot_be_submitted_with_other_content(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    shown = bench.ask("one", **DEAR)
    assert bench.ask("one", value=str(ETHER // 10)).decision.rule == "replay"
    assert bench.ask("one", asker="sandbox:b", **DEAR).decision.rule == "replay"
    assert [one["hash"] for one in bench.service.pending()] == [shown.hash]
    assert bench.service.approve("one", approver="owner").hash == shown.hash


def test_an_approved_request_is_judged_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.ask("one", **DEAR)
    for _ in range(10):
        assert bench.ask().signature
    assert bench.service.approve("one", approver="owner").decision.rule == "hourly"
    assert len(bench.key.orders) == 10
    tighter = Bench(tmp_path / "other")
    tighter.ask("one", **DEAR)
    later = Bench(tmp_path / "other", {**POLICY, "denied_addresses": [FRIEND]})
    assert later.service.approve("one", approver="owner").decision.rule == "denied"


def test_a_hundred_at_once_do_not_pass_a_limit_of_ten(tmp_path: Path) -> None:
    benches = [Bench(tmp_path) for _ in range(6)]  # as four processes would
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda at=at: results.append(benches[at % 4].ask(f"c{at}", nonce=at)))
        for at in range(100)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sum(result.signature is not None for result in results) == 10
    assert sum(len(bench.key.orders) for bench in benches) == 10


def test_one_id_many_times_at_once_is_signed_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    results: list[Any] = []
    threads = [threading.Thread(target=lambda at=at: results.append(bench.ask("same", nonce=at))) for at in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sum(result.signature is not None for result in results) == 1


def test_two_approvals_at_once_sign_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.ask("one", **DEAR)
    outcomes: list[str] = []

    def approve(at: int) -> None:
        try:
            bench.service.approve("one", approver=f"token:{at}")
            outcomes.append("signed")
        except NotFound:
            outcomes.append("gone")

    threads = [threading.Thread(target=approve, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["gone"] * 7 + ["signed"]
    assert len(bench.key.orders) == 1


PROCESS = """
import sys
from pathlib import Path
from tests.signing.keys import Bench
bench = Bench(Path(sys.argv[1]))
print(sum(bench.ask(f"{sys.argv[2]}-{at}").signature is not None for at in range(8)))
"""


def test_two_processes_share_one_set_of_counters(tmp_path: Path) -> None:
    started = [
        subprocess.Popen([sys.executable, "-c", PROCESS, str(tmp_path), name], stdout=subprocess.PIPE, text=True)
        for name in "ab"
    ]
    assert sum(int(one.communicate()[0]) for one in started) == 10


TOGETHER = """
import multiprocessing, sys
from sandbox.signing.ledger import Ledger
def make(together):
    try:
        for at in range(150):
            together.wait()
            Ledger(f"{sys.argv[1]}/{at}.db").close()
    except BaseException:
        together.abort()
        raise
context = multiprocessing.get_context("fork")
together = context.Barrier(6)
made = [context.Process(target=make, args=(together,)) for _ in range(6)]
for one in made: one.start()
for one in made: one.join()
sys.exit(any(one.exitcode for one in made))
"""


def test_many_processes_may_make_the_ledger_at_once(tmp_path: Path) -> None:
    """SQLite does not wait where two processes make one file fit for both at the same moment."""
    run = subprocess.run([sys.executable, "-c", TOGETHER, str(tmp_path)], capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr


def test_a_restart_forgets_neither_counters_nor_ids(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    for at in range(10):
        assert first.ask(f"n{at}").signature
    first.ledger.close()
    second = Bench(tmp_path)
    assert second.ask("n0").decision.rule == "replay"
    assert second.ask("fresh").decision.rule == "hourly"


def test_a_rejected_or_expired_id_is_used(tmp_path: Path) -> None:
    clock = SetClock()
    bench = Bench(tmp_path, clock=clock)
    bench.ask("no", **DEAR)
    bench.service.reject("no", approver="owner")
    assert bench.ask("no", value="1").decision.rule == "replay"
    bench.ask("late", **DEAR)
    clock.passes(301)
    with pytest.raises(NotFound):
        bench.service.approve("late", approver="owner")
    assert bench.ask("late", value="1").decision.rule == "replay"
    assert bench.key.orders == []


def test_a_request_whose_time_is_over_is_so_for_good_also_when_a_decision_is_refused(tmp_path: Path) -> None:
    clock = SetClock()
    bench = Bench(tmp_path, clock=clock)
    bench.ask("late", **DEAR)
    clock.passes(301)
    for decide in (bench.service.approve, bench.service.reject):
        with pytest.raises(NotFound):
            decide("late", approver="owner")
    with bench.ledger.transaction() as ledger:
        assert ledger.expire() == []


def test_a_clock_moved_back_opens_nothing(tmp_path: Path) -> None:
    clock = SetClock()
    bench = Bench(tmp_path, clock=clock)
    for _ in range(10):
        assert bench.ask().signature
    bench.ask("waits", **DEAR)
    clock.set_to -= 10 * 86400
    assert bench.ask().decision.rule == "hourly"
    clock.passes(301)  # also what waits ends when its time is over, not when the clock says so
    assert bench.service.pending() == []
    clock.restarts()
    assert bench.ask().decision.rule == "hourly"
    clock.set_to += 86400
    assert bench.ask().decision.rule == "hourly"


def test_a_clock_moved_forward_opens_nothing_either(tmp_path: Path) -> None:
    clock = SetClock()
    bench = Bench(tmp_path, clock=clock)
    for _ in range(10):
        assert bench.ask().signature
    clock.set_to += 10 * 86400
    assert bench.ask().decision.rule == "hourly"
    clock.passes(3601)
    assert bench.ask().signature


def test_a_claim_whose_process_died_stays_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {**POLICY, "max_per_hour": 1})

    def die(order: Any) -> str:
        raise MemoryError

    bench.key.sign_transaction = die  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        bench.ask("one")
    again = Bench(tmp_path, {**POLICY, "max_per_hour": 1})
    assert again.ask("one").decision.rule == "replay"
    assert again.ask("two").decision.rule == "hourly"


def test_the_asker_of_what_was_approved_comes_back_for_it_and_nobody_else(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.ask("one", **DEAR)
    assert bench.ask("one", **DEAR).pending
    signed = bench.service.approve("one", approver="owner").signature
    assert bench.ask("one", **DEAR).signature == signed
    assert bench.ask("one", asker="sandbox:b", **DEAR).decision.rule == "replay"
    with pytest.raises(NotFound):
        bench.service.wait("one", asker="sandbox:b", seconds=0)


def test_the_ledger_is_private_and_no_link(tmp_path: Path) -> None:
    from sandbox.errors import SandboxError
    from sandbox.signing.ledger import Ledger

    bench = Bench(tmp_path / "new")
    bench.ask()
    for file in (tmp_path / "new").glob("ledger.db*"):
        assert file.stat().st_mode & 0o077 == 0
    (tmp_path / "planted").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SandboxError):
        Ledger(str(tmp_path / "planted"))


def test_the_record_has_hashes_and_reasons_and_no_signature(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    signed = bench.ask("ok")
    bench.ask("bad", to=FOE)
    bench.ask("dear", **DEAR)
    bench.service.reject("dear", approver="owner")
    entries = bench.entries()
    assert [one["type"].removeprefix("signing_request_") for one in entries] == [
        "submitted", "approved", "submitted", "rejected", "submitted", "rejected"
    ]  # fmt: skip
    assert entries[3]["policy"] == "denied"
    assert entries[5]["metadata"]["by"] == "owner"
    assert signed.signature[4:] not in str(entries)


def test_the_number_that_can_wait_is_limited(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    waiting = [bench.ask(**DEAR) for _ in range(17)]
    assert [one.pending for one in waiting] == [True] * 16 + [False]
    assert bench.ask(asker="sandbox:b", **DEAR).pending
