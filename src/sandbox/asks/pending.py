"""The questions of one sandbox: who waits for which, and what was answered. The first answer wins.

A tenant decides when questions arise, so everything is bounded: one question at a time about a host, a few hosts at a
time, a fixed number of waiting connections. After a denial the same host is not asked about again for a while, and all
questions become rarer. What exceeds a bound is refused at once.
"""

from __future__ import annotations

import time
from threading import Condition, get_ident

from sandbox.asks.budget import QuestionBudget
from sandbox.asks.earlier_answers import EarlierAnswers
from sandbox.asks.question import ALLOWED, ALWAYS, ENDS, ONCE, Question
from sandbox.asks.record import AskReporter
from sandbox.asks.timer import Timer
from sandbox.asks.verdict import ENDED, LATER, NOBODY, TOO_FAST, TOO_MANY, UNRECORDED, Verdict, reason
from sandbox.errors import InvalidArgument, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Protocol

    from sandbox.asks.question import Subject

    class OwnerChannel(Protocol):
        """A way to reach the owner. Its methods are called from any thread and return at once."""

        name: str

        def there(self) -> bool:
            """Whether somebody can be asked now."""

        def show(self, question: Question) -> None:
            """Asks. The answer comes to `Asks.answer`."""

        def over(self, question: Question) -> None:
            """The question has ended, whoever answered."""


MOST_QUESTIONS = 8  # at a time
MOST_WAITING = 256  # connections and requests, of all questions together


class Waiter:
    """A connection or request that waits. `then` is called once, in any thread. `alive` says whether an answer still
    matters."""

    __slots__ = ("subject", "then", "alive", "seconds")

    def __init__(
        self, subject: Subject, seconds: float, then: Callable[[Verdict], object], alive: Callable[[], bool]
    ) -> None:
        self.subject = subject
        self.seconds = seconds
        self.then = then
        self.alive = alive


class Asks:
    """Thread-safe. `number()` gives the next question's number, `keep(subject)` writes an "always" to the user's config
    and raises SandboxError when it cannot."""

    def __init__(
        self,
        sandbox: str,
        *,
        emit: Callable[[dict[str, object]], None],
        record: Callable[..., None],
        number: Callable[[], int],
        keep: Callable[[Subject], None],
        clock: Callable[[], float] = time.monotonic,
        timer: bool = True,
    ) -> None:
        """Without a `timer`, nothing expires until `expire` is called."""
        self._changed = Condition()
        self._sandbox = sandbox
        self._reporter = AskReporter(emit, record)
        self._number = number
        self._keep = keep
        self._clock = clock
        self._timer = Timer(self._changed, self.expire, lambda: bool(self._questions), clock) if timer else None
        self._ways: list[OwnerChannel] = []
        self._questions: dict[Hashable, Question] = {}  # by key
        self._waiting: dict[Hashable, list[Waiter]] = {}
        self._shown: dict[int, list[OwnerChannel]] = {}
        self._claimed: set[int] = set()
        self._answering: set[int] = set()  # threads that carry an answer out
        self._earlier = EarlierAnswers(clock)
        self._budget = QuestionBudget(clock)
        self._closed = False

    # -- who can be asked

    def add(self, way: OwnerChannel) -> Callable[[], None]:
        """Asks this way too, from the next question on. Returns a function that removes it."""
        with self._changed:
            self._ways.append(way)

        def remove() -> None:
            with self._changed:
                if way in self._ways:
                    self._ways.remove(way)

        return remove

    # -- asking

    def granted(self, subject: Subject) -> bool:
        """Whether it was allowed for the sandbox's whole life."""
        return self._earlier.granted(subject)

    def asks_anew(self, subject: Subject) -> bool:
        """Whether a question about `subject` would be shown now: not decided, not waiting, within the bounds."""
        with self._changed:
            if self._closed or subject.key in self._questions or self._earlier.settles(subject):
                return False
            return len(self._questions) < MOST_QUESTIONS and self._budget.enough()

    def ask(
        self,
        subject: Subject,
        seconds: float,
        then: Callable[[Verdict], object],
        alive: Callable[[], bool] = lambda: True,
    ) -> Callable[[], None]:
        """Calls `then` with the verdict, now or later. Returns a function that stops waiting. The question stays, so
        that a client that tries again finds the answer."""
        waiter = Waiter(subject, seconds, then, alive)
        with self._changed:
            verdict = self._known(subject)
            asked = None
            if verdict is None:
                same = self._waiting.get(subject.key)
                if same is not None:
                    same.append(waiter)
                else:
                    verdict, asked = self._begin([waiter])
        if verdict is not None:
            then(verdict)
        elif asked is not None:
            self._show(asked)
        return lambda: self._give_up(waiter)

    def _known(self, subject: Subject) -> Verdict | None:
        """What is already decided; under the lock."""
        if self._closed:
            return Verdict(False, "", ENDED)
        verdict = self._earlier.verdict(subject)
        if verdict is not None or subject.key not in self._questions:
            return verdict
        too_many = sum(map(len, self._waiting.values())) >= MOST_WAITING
        return Verdict(False, "", TOO_MANY) if too_many else None

    def _begin(self, waiters: list[Waiter]) -> tuple[Verdict | None, Question | None]:
        """Starts the question of the first of `waiters`; under the lock."""
        subject = waiters[0].subject
        there = [way for way in self._ways if way.there()]
        if not there:
            return Verdict(False, "", NOBODY), None
        if len(self._questions) >= MOST_QUESTIONS:
            return Verdict(False, "", TOO_MANY), None
        if not self._budget.take():
            return Verdict(False, "", TOO_FAST), None
        question = Question(self._number(), subject, self._sandbox, waiters[0].seconds, self._clock())
        self._reporter.asked(question, [way.name for way in there])  # before anything waits: it may raise
        self._questions[subject.key] = question
        self._waiting[subject.key] = waiters
        self._shown[question.id] = there
        if self._timer is not None:
            self._timer.start()
        self._changed.notify_all()
        return None, question

    def _show(self, question: Question) -> None:
        for way in list(self._shown.get(question.id, ())):
            way.show(question)

    def _give_up(self, waiter: Waiter) -> None:
        with self._changed:
            waiting = self._waiting.get(waiter.subject.key, [])
            if waiter in waiting:
                waiting.remove(waiter)

    # -- answering

    def pending(self) -> list[Question]:
        """The questions that wait, the oldest first."""
        with self._changed:
            return sorted(self._questions.values(), key=lambda one: one.id)

    def answer(self, id: int, answer: str, by: str) -> Question:
        """Ends a question. Raises NotFound when it is not waiting, InvalidArgument when it does not have that answer,
        and what `keep` raises; after an error from `keep` it still waits."""
        with self._changed:
            question = next((one for one in self._questions.values() if one.id == id), None)
            if question is None or id in self._claimed:
                raise not_waiting(id)
            if answer not in question.subject.answers:
                raise InvalidArgument(
                    "{answer!r} is not an answer to this question; use one of {answers}",
                    answer=answer,
                    answers=", ".join(question.subject.answers),
                )
            self._claimed.add(id)  # the first answer wins; writing a file takes a while
            self._answering.add(get_ident())
        try:
            self._carry_out(question, answer, by)
        finally:
            with self._changed:
                self._answering.discard(get_ident())
                self._changed.notify_all()
        return question

    def _carry_out(self, question: Question, answer: str, by: str) -> None:
        try:
            if answer == ALWAYS:
                self._keep(question.subject)
        except BaseException:
            with self._changed:
                self._claimed.discard(question.id)
            raise
        self._end(question, answer, by)

    def settle(self, patience: float) -> None:
        """Waits until the answers that were given are carried out and reported, at most `patience` seconds: a tenant
        that an answer lets continue may end before that."""
        with self._changed:
            self._changed.wait_for(lambda: not self._answering - {get_ident()}, patience)

    def abstain(self, question: Question, way: OwnerChannel) -> None:
        """A way found nobody to answer after all. If it was the last one, the question ends."""
        with self._changed:
            shown = self._shown.get(question.id, [])
            if way in shown:
                shown.remove(way)
            last = not shown and question.id not in self._claimed
            if last and self._questions.get(question.subject.key) is question:
                self._claimed.add(question.id)
            else:
                last = False
        if last:
            self._end(question, "time", "", NOBODY)

    def expire(self) -> float | None:
        """Ends the questions whose time is over. Returns when to look again, by the clock. Raises what the record does,
        when all have ended."""
        now = self._clock()
        with self._changed:
            waiting = [one for one in self._questions.values() if one.id not in self._claimed]
            over = [one for one in waiting if one.until <= now]
            self._claimed.update(one.id for one in over)
        self._end_all(over, "time")
        with self._changed:
            waiting = [one for one in self._questions.values() if one.id not in self._claimed]
            return min((one.until for one in waiting), default=None)

    def _end_all(self, questions: list[Question], event: str, why: str = "") -> None:
        """Ends each of them, whatever happens with another."""
        problems: list[BaseException] = []
        for question in questions:
            try:
                self._end(question, event, "", why)
            except BaseException as problem:  # noqa: BLE001 - raised at the end
                problems.append(problem)
        if problems:
            raise problems[0]

    def _end(self, question: Question, event: str, by: str, why: str = "") -> None:
        """Carries an answer out, and asks the next question about the same host. Everybody who waits is told, whatever
        happens with another; then the first error is raised."""
        settled: list[tuple[Waiter, Verdict]] = []
        problems: list[BaseException] = []
        with self._changed:
            if self._questions.get(question.subject.key) is not question:
                return  # `close` was faster
            shown = self._shown.pop(question.id, [])
            following = self._decide(question, event, by, why, settled, problems)
            self._changed.notify_all()
        steps: list[tuple[Callable[..., object], object]] = [(way.over, question) for way in shown]
        steps += [(waiter.then, verdict) for waiter, verdict in settled]
        if not problems:
            steps.append((self._reporter.told, question))  # last: whoever hears of the answer finds it carried out
        if following is not None:
            steps.append((self._show, following))
        for call, argument in steps:
            try:
                call(argument)
            except BaseException as problem:  # noqa: BLE001 - raised at the end
                problems.append(problem)
        if problems:
            raise problems[0]

    def _decide(
        self,
        question: Question,
        event: str,
        by: str,
        why: str,
        settled: list[tuple[Waiter, Verdict]],
        problems: list[BaseException],
    ) -> Question | None:
        """Records an answer, then says what each waiter gets. Returns the question that follows. Under the lock: nobody
        may find an answer that is not on the record."""
        subject = question.subject
        question.state, question.answer, question.by = ENDS[event], event if event in subject.answers else "", by
        verdict = Verdict(question.state == ALLOWED, question.answer, why or reason(question))
        unrecorded = Verdict(False, "", UNRECORDED)
        self._claimed.discard(question.id)
        del self._questions[subject.key]
        left = waiters = self._waiting.pop(subject.key)
        refused: Verdict | None = unrecorded
        following = None
        try:
            self._reporter.ended(question, verdict.why)
        except BaseException as problem:  # noqa: BLE001 - what is not on the record is not allowed
            problems.append(problem)
        try:
            if not problems or not verdict:
                left = _settle(self._earlier, self._budget, subject, verdict, event, waiters, settled)
                if left:
                    refused, following = self._begin(left)
        except BaseException as problem:  # noqa: BLE001 - raised at the end
            problems.append(problem)
        if refused is not None:
            told = [one for one, _ in settled]
            settled += [(one, refused) for one in left if one not in told]
        return following

    # -- the end

    def close(self) -> None:
        """The sandbox ends: nothing waits any more. Idempotent."""
        with self._changed:
            self._closed = True
            left = list(self._questions.values())
            self._changed.notify_all()
        try:
            self._end_all(left, "close", ENDED)
        finally:
            if self._timer is not None:
                self._timer.close()


def _settle(
    earlier: EarlierAnswers,
    budget: QuestionBudget,
    subject: Subject,
    verdict: Verdict,
    event: str,
    waiters: list[Waiter],
    settled: list[tuple[Waiter, Verdict]],
) -> list[Waiter]:
    """Says what each waiter gets; returns those that the answer does not apply to. Call it under the lock."""
    if not verdict:
        if event != "close":
            earlier.deny(subject)
            budget.denied()
        settled += [(one, verdict) for one in waiters]
        return []
    budget.allowed()
    earlier.forget_denials(subject)
    if event == ONCE:
        meant = [one for one in waiters if one.subject.exact == subject.exact]
        if not any(one.alive() for one in meant):
            # The answer is for the next attempt, so these are refused: a client that has closed only its own end would
            # otherwise be allowed twice.
            earlier.allow_next(subject)
            settled += [(one, Verdict(False, "", LATER)) for one in meant]
            return [one for one in waiters if one not in meant]
    else:
        earlier.grant(subject)
        meant = [one for one in waiters if one.subject.grant == subject.grant]
    settled += [(one, verdict) for one in meant]
    return [one for one in waiters if one not in meant]


def not_waiting(id: int) -> NotFound:
    """The error for an answer to a question that does not wait."""
    return NotFound("no question {id} is waiting: it was answered, or it timed out", id=id)
