"""Questions and answers on the record and as events."""

from __future__ import annotations

from sandbox.asks.question import ALLOWED
from sandbox.events import event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandbox.asks.question import Question


class AskReporter:
    """Reports for one sandbox. Questions are few, so nothing is left out."""

    def __init__(self, emit: Callable[[dict[str, object]], None], record: Callable[..., None]) -> None:
        self._emit = emit
        self._record = record

    def asked(self, question: Question, ways: Sequence[str]) -> None:
        """A question begins to wait."""
        self._record(
            "policy_decision",
            f"asked: {question.subject.text}",
            operation="ask",
            target=question.subject.target,
            policy="ask",
            metadata={**_metadata(question), "ways": ", ".join(ways)},
        )
        self._emit(event("ask", **question.plain()))

    def ended(self, question: Question, why: str) -> None:
        """Somebody answered it, or nobody did in time."""
        allowed = question.state == ALLOWED
        self._record(
            "policy_decision",
            f"ask {question.state}: {question.subject.target}",
            severity="info" if allowed else "warn",
            operation="ask",
            target=question.subject.target,
            result="allowed" if allowed else "blocked",
            policy=f"ask: {question.answer}" if question.answer else "ask",
            reason=why,
            metadata={**_metadata(question), "answer": question.answer, "by": question.by},
        )

    def told(self, question: Question) -> None:
        """The answer was carried out."""
        self._emit(event("ask", **question.plain()))


def _metadata(question: Question) -> dict[str, str | int | None]:
    requester = question.subject.requester
    return {"ask": question.id, "program": requester.program, "exe": requester.exe, "pid": requester.pid}
