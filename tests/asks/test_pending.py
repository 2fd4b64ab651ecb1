"""Questions and answers: the first answer wins, nothing waits for ever, and a tenant cannot flood its owner."""

from __future__ import annotations

import threading

import pytest

from sandbox.asks.budget import BURST, EVERY, RAREST
from sandbox.asks.earlier_answers import MOST_DENIALS, ONCE_LASTS
from sandbox.asks.pending import MOST_QUESTIONS, MOST_WAITING
from sandbox.asks.question import ENDS, FileSubject, HostSubject, Question, Subject
from sandbox.asks.verdict import Verdict
from sandbox.errors import InvalidArgument, NotFound, SandboxError
from tests.asks.tables import Table, Way


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.mark.parametrize(("answer", "allowed"), [("once", True), ("sandbox", True), ("always", True), ("deny", False)])
def test_an_answer_ends_the_question(table: Table, answer: str, allowed: bool) -> None:
    verdicts = table.ask()
    assert verdicts == [] and [one.id for one in table.asks.pending()] == [1]
    table.answer(answer)
    assert [bool(one) for one in verdicts] == [allowed]
    assert table.asks.pending() == [] and [one.id for one in table.way.ended] == [1]
    assert table.events[-1]["state"] == ENDS[answer] and table.events[-1]["by"] == "somebody"


def test_only_the_first_answer_counts(table: Table) -> None:
    verdicts = table.ask()
    table.answer("deny", 1)
    with pytest.raises(NotFound, match="no question 1 is waiting"):
        table.answer("always", 1)
    assert [bool(one) for one in verdicts] == [False] and table.kept == []


def test_of_many_answers_at_the_same_time_one_wins() -> None:
    for _ in range(50):
        table = Table()
        verdicts = table.ask()
        start = threading.Barrier(3)
        won: list[str] = []

        def answer(word: str, table: Table = table, start: threading.Barrier = start, won: list[str] = won) -> None:
            start.wait()
            try:
                table.answer(word, 1)
                won.append(word)
            except NotFound:
                pass

        threads = [threading.Thread(target=answer, args=(word,)) for word in ("once", "deny", "always")]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert len(won) == 1 and [one.answer for one in verdicts] == won
        assert len(table.kept) == (won == ["always"])


def test_an_answer_that_there_is_not_leaves_the_question_waiting(table: Table) -> None:
    verdicts = table.ask()
    with pytest.raises(InvalidArgument, match="'yes' is not an answer"):
        table.answer("yes")
    assert verdicts == [] and len(table.asks.pending()) == 1


def test_a_file_cannot_be_allowed_always(table: Table) -> None:
    table.asks.ask(FileSubject("/p/.env", "read"), 30.0, lambda _: None)
    with pytest.raises(InvalidArgument):
        table.answer("always")


def test_nobody_there_is_a_refusal_at_once() -> None:
    table = Table(there=False)
    (verdict,) = table.ask()
    assert not verdict and verdict.why.startswith("nobody was there to answer")
    assert table.events == [] and table.records == []  # the refusal itself is recorded, as every one


def test_without_an_answer_in_time_it_is_refused(table: Table) -> None:
    verdicts = table.ask()
    table.pass_time(29.9)
    assert verdicts == []
    table.pass_time(0.2)
    (verdict,) = verdicts
    assert not verdict and "did not answer within 30 s" in verdict.why
    assert table.events[-1]["state"] == "expired" and table.records[-1]["result"] == "blocked"


def test_the_timer_ends_questions_by_itself() -> None:
    from sandbox.asks.pending import Asks
    from sandbox.asks.question import HostSubject

    asks = Asks("vm", emit=lambda _: None, record=lambda *_, **__: None, number=lambda: 1, keep=lambda _: None)
    asks.add(Way())
    over = threading.Event()
    asks.ask(HostSubject("a.test", 443), 0.01, lambda _: over.set())
    assert over.wait(20)
    asks.close()


def test_connections_for_the_same_thing_share_one_question(table: Table) -> None:
    verdicts = [table.ask() for _ in range(5)]
    assert len(table.asks.pending()) == 1
    table.answer("once")
    assert [len(one) for one in verdicts] == [1] * 5 and all(one[0] for one in verdicts)
    assert len(table.way.shown) == 1


def test_other_requests_to_the_host_queue_behind_the_question(table: Table) -> None:
    harmless, other = table.ask(path="/"), table.ask(path="/steal")
    assert len(table.asks.pending()) == 1
    table.answer("once")
    # What was not shown is not allowed: it is the next question.
    assert harmless and not other
    assert [one.subject.details()["path"] for one in table.asks.pending()] == ["/steal"]
    table.answer("deny")
    assert not other[0]


def test_two_long_paths_that_begin_the_same_are_two_requests(table: Table) -> None:
    first, second = table.ask(path="/" + "x" * 500), table.ask(path="/" + "x" * 500 + "?")
    table.answer("once")
    assert first and not second


def test_for_the_sandbox_means_this_host_and_port(table: Table) -> None:
    table.ask()
    table.answer("sandbox")
    assert table.ask()[0] and table.ask(path="/any")[0]
    assert table.ask(port=8443) == [] and table.ask("b.test") == []
    assert len(table.way.shown) == 3


def test_a_connection_to_another_port_is_not_let_through_with_it(table: Table) -> None:
    first, other = table.ask(), table.ask(port=22)
    table.answer("sandbox")
    assert first and not other and table.asks.pending()[0].subject.target == "a.test:22"


def test_once_is_once(table: Table) -> None:
    table.ask()
    table.answer("once")
    assert table.ask() == []


def test_always_is_written_before_anything_passes(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = table.ask()

    def keep(subject: Subject) -> None:
        assert verdicts == []
        with pytest.raises(NotFound):  # it is claimed
            table.answer("deny", 1)
        table.kept.append(subject)

    monkeypatch.setattr(table.asks, "_keep", keep)
    table.answer("always")
    assert verdicts[0] and [one.target for one in table.kept] == ["a.test:443"]


def test_an_answer_that_cannot_be_written_is_an_error_and_the_question_still_waits(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(_: Subject) -> None:
        raise SandboxError("the disk is full")

    monkeypatch.setattr(table.asks, "_keep", keep)
    verdicts = table.ask()
    with pytest.raises(SandboxError, match="the disk is full"):
        table.answer("always")
    assert verdicts == []
    table.answer("sandbox")
    assert verdicts[0]


def test_a_program_that_gave_up_finds_the_answer_when_it_tries_again(table: Table) -> None:
    alive = True
    gone = table.ask(alive=lambda: alive)
    alive = False
    table.answer("once")
    assert gone  # whoever still holds that end hears of it
    assert table.ask()[0]
    assert table.ask() == []  # and that was once


def test_one_that_closed_only_its_own_end_has_no_answer_more_than_the_next(table: Table) -> None:
    half_closed = table.ask(alive=lambda: False)
    table.answer("once")
    assert [bool(one) for one in (*half_closed, *table.ask())] == [False, True]


def test_only_what_will_be_shown_is_asked_again(table: Table) -> None:
    from sandbox.asks.question import HostSubject

    subject = HostSubject("a.test", 443)
    assert table.asks.asks_anew(subject)
    table.ask()
    assert not table.asks.asks_anew(subject)  # it waits
    table.answer("deny")
    assert not table.asks.asks_anew(subject)  # it was refused
    for number in range(BURST):
        assert table.asks.asks_anew(HostSubject(f"b{number}.test", 443)) == (number < BURST - 1)
        table.ask(f"b{number}.test")
        if table.asks.pending():
            table.answer("sandbox")


def test_an_answer_for_one_that_gave_up_is_not_kept_long(table: Table) -> None:
    table.ask(alive=lambda: False)
    table.answer("once")
    table.pass_time(ONCE_LASTS + 1)
    assert table.ask() == []


def test_a_connection_that_gives_up_gets_no_answer_and_the_question_stays(table: Table) -> None:
    from sandbox.asks.question import HostSubject

    verdicts: list[Verdict] = []
    give_up = table.asks.ask(HostSubject("a.test", 443), 30.0, verdicts.append)
    give_up()
    assert len(table.asks.pending()) == 1
    table.answer("once")
    assert verdicts == [] and table.ask()[0]


# -- bounds


def test_a_denied_host_is_not_asked_about_again_for_a_while_that_grows(table: Table) -> None:
    for pause in (30, 60, 120):
        table.ask()
        table.answer("deny")
        (verdict,) = table.ask()
        assert not verdict and "refused a short time ago" in verdict.why
        table.pass_time(pause - 1)
        assert table.ask()
        table.pass_time(2)
    assert table.ask() == []


def test_the_number_of_waiting_questions_is_limited(table: Table) -> None:
    for number in range(MOST_QUESTIONS):
        assert table.ask(f"{number}.test") == []
    (verdict,) = table.ask("more.test")
    assert not verdict and verdict.why == "too many questions are waiting for an answer"


def test_the_number_of_waiting_connections_is_limited(table: Table) -> None:
    for _ in range(MOST_WAITING):
        assert table.ask() == []
    assert table.ask()[0].why == "too many questions are waiting for an answer"


def test_questions_become_rare_and_denials_make_them_rarer(table: Table) -> None:
    def asked_and_denied(number: int) -> bool:
        if table.ask(f"{number}.test"):
            return False
        table.answer("deny")
        return True

    asked = [asked_and_denied(number) for number in range(100)]
    assert asked.count(True) == BURST
    table.pass_time(EVERY * 3)
    assert not asked_and_denied(100)  # one would have been due already
    table.pass_time(RAREST)
    assert asked_and_denied(101) and not asked_and_denied(102)
    table.pass_time(100 * RAREST)
    more = [asked_and_denied(number) for number in range(103, 203)]
    assert more.count(True) == BURST  # however long nobody asked


def test_made_up_names_do_not_pile_up(table: Table) -> None:
    for number in range(3000):
        table.now += 400
        table.ask(f"{number}.test")
        if table.asks.pending():
            table.answer("deny")
    assert len(table.asks._earlier._denied) <= 2 * MOST_DENIALS


# -- the end, and failures


def test_the_end_of_the_sandbox_refuses_all_that_wait(table: Table) -> None:
    verdicts, queued = table.ask(), table.ask(path="/x")
    table.asks.close()
    assert not verdicts[0] and not queued[0]
    assert table.events[-1]["state"] == "withdrawn"
    assert not table.ask()[0]
    table.asks.close()


def test_an_answer_that_is_not_on_the_record_allows_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = table.ask()

    def fails(*_: object) -> None:
        raise SandboxError("cannot write the record")

    monkeypatch.setattr(table.asks._reporter, "ended", fails)
    with pytest.raises(SandboxError):
        table.answer("sandbox")
    assert not verdicts[0] and not table.asks.granted(table.way.shown[0].subject)


def test_when_the_last_way_has_nobody_it_is_refused(table: Table) -> None:
    other = Way()
    table.asks.add(other)
    verdicts = table.ask()
    (question,) = table.asks.pending()
    table.asks.abstain(question, other)
    assert verdicts == []
    table.asks.abstain(question, table.way)
    assert verdicts[0].why.startswith("nobody was there")


def test_a_way_that_was_removed_is_not_asked() -> None:
    table = Table(there=False)
    way = Way()
    remove = table.asks.add(way)
    remove()
    assert table.ask() and way.shown == []


def test_everything_is_on_the_record(table: Table) -> None:
    table.ask()
    table.answer("always")
    asked, answered = table.records
    assert asked["operation"] == "ask" and asked["target"] == "a.test:443" and asked["metadata"]["ways"] == "test"
    assert (answered["result"], answered["policy"], answered["severity"]) == ("allowed", "ask: always", "info")
    assert answered["metadata"]["by"] == "somebody" and answered["metadata"]["ask"] == asked["metadata"]["ask"] == 1
    assert [one["state"] for one in table.events] == ["waiting", "allowed"]


def test_the_end_of_the_sandbox_waits_until_an_answer_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tenant whom the answer lets go on may end, and the sandbox with it, before anybody has heard of it."""
    table = Table()
    told: list[str] = []

    def end() -> None:
        table.asks.settle(20)
        told.append("ended")

    def tell(question: Question) -> None:
        emit(question)
        told.append("told")

    ending = threading.Thread(target=end)
    table.asks.ask(FileSubject("/p/x", "read"), 60, lambda _: ending.start())
    emit = table.asks._reporter.told
    monkeypatch.setattr(table.asks._reporter, "told", tell)
    table.answer("sandbox")
    ending.join()
    assert told == ["told", "ended"]


def unrecorded(*_: object) -> None:
    raise SandboxError("cannot write the record")


def test_once_for_the_next_attempt_is_not_kept_either_without_a_record(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.ask(alive=lambda: False)
    with monkeypatch.context() as broken, pytest.raises(SandboxError):
        broken.setattr(table.asks._reporter, "ended", unrecorded)
        table.answer("once")
    assert table.ask() == []  # asked again


@pytest.mark.parametrize("answer", ["once", "sandbox"])
def test_nothing_is_allowed_before_it_is_on_the_record(
    table: Table, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    table.ask(alive=lambda: False)
    subject = table.way.shown[0].subject
    seen: list[bool] = []
    monkeypatch.setattr(table.asks._reporter, "ended", lambda *_: seen.append(table.asks._earlier.settles(subject)))
    table.answer(answer)
    assert seen == [False] and table.asks._earlier.settles(subject)


def test_every_question_ends_in_time_although_none_can_be_recorded(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = [table.ask("a.test"), table.ask("b.test"), table.ask("c.test")]
    monkeypatch.setattr(table.asks._reporter, "ended", unrecorded)
    with pytest.raises(SandboxError):
        table.pass_time(31)
    assert [[bool(each) for each in one] for one in verdicts] == [[False]] * 3 and table.asks.pending() == []


def test_the_end_refuses_everybody_although_none_can_be_recorded(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = [table.ask("a.test"), table.ask("b.test"), table.ask("c.test")]
    monkeypatch.setattr(table.asks._reporter, "ended", unrecorded)
    with pytest.raises(SandboxError):
        table.asks.close()
    assert [[bool(each) for each in one] for one in verdicts] == [[False]] * 3


def test_one_waiter_that_fails_keeps_no_other_waiting(table: Table) -> None:
    def fails(_verdict: Verdict) -> None:
        raise OSError("it has gone")

    table.ask()
    subject = table.way.shown[0].subject
    table.asks.ask(subject, 30.0, fails)
    last = table.ask()
    with pytest.raises(OSError, match="it has gone"):
        table.answer("sandbox")
    assert [bool(one) for one in last] == [True]
    assert table.events[-1]["state"] == ENDS["sandbox"]


def test_waiting_for_a_next_question_that_cannot_be_asked_is_refused(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = table.ask(), table.ask(path="/other")
    monkeypatch.setattr(table.asks._reporter, "asked", unrecorded)
    with pytest.raises(SandboxError):
        table.answer("once")
    assert [bool(one) for one in first] == [True] and [bool(one) for one in second] == [False]


def test_the_timer_survives_an_end_that_cannot_be_recorded() -> None:
    from sandbox.asks.pending import Asks

    count = iter(range(1, 100))
    refused = [threading.Event(), threading.Event()]

    def record(_kind: str, summary: str, **_: object) -> None:
        if not summary.startswith("asked"):
            unrecorded()

    asks = Asks("vm", emit=lambda _: None, record=record, number=lambda: next(count), keep=lambda _: None)
    asks.add(Way())
    for host, event in zip(("a.test", "b.test"), refused, strict=True):
        asks.ask(HostSubject(host, 443, "", ""), 0.01, lambda _, event=event: event.set())  # type: ignore[misc]
        assert event.wait(60)
    asks.close()
