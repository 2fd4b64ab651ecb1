"""A table of questions with a clock of its own, and everything it told."""

from __future__ import annotations

from typing import Any

from sandbox.asks.pending import Asks
from sandbox.asks.question import HostSubject, Question, Subject
from sandbox.asks.verdict import Verdict


class Way:
    """Somebody who may be there."""

    name = "test"

    def __init__(self, there: bool = True) -> None:
        self.is_there = there
        self.shown: list[Question] = []
        self.ended: list[Question] = []

    def there(self) -> bool:
        return self.is_there

    def show(self, question: Question) -> None:
        self.shown.append(question)

    def over(self, question: Question) -> None:
        self.ended.append(question)


class Table:
    def __init__(self, there: bool = True) -> None:
        self.now = 1000.0
        self.events: list[dict[str, Any]] = []
        self.records: list[dict[str, Any]] = []
        self.kept: list[Subject] = []
        self._number = 0
        self.asks = Asks(
            "vm-test",
            emit=self._emit,
            record=self._record,
            number=self._next,
            keep=self._keep,
            clock=lambda: self.now,
            timer=False,
        )
        self.way = Way(there)
        self.asks.add(self.way)

    def _emit(self, event: dict[str, Any]) -> None:
        self.events.append(event["ask"])

    def _record(self, kind: str, summary: str, **more: Any) -> None:
        self.records.append({"type": kind, "summary": summary, **more})

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _keep(self, subject: Subject) -> None:
        self.kept.append(subject)

    def ask(self, host: str = "a.test", port: int = 443, path: str = "", **more: Any) -> list[Verdict]:
        """Asks; the verdict is in the list when there is one."""
        verdicts: list[Verdict] = []
        method = "GET" if path else ""
        self.asks.ask(HostSubject(host, port, method, path), 30.0, verdicts.append, **more)
        return verdicts

    def answer(self, answer: str, id: int | None = None) -> None:
        self.asks.answer(id or self.asks.pending()[0].id, answer, "somebody")

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.asks.expire()
