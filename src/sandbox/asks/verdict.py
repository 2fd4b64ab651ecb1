"""The outcome of a question, and the reasons that the tenant, the record and the event get."""

from __future__ import annotations

from sandbox.asks.question import ALLOWED, DENY
from sandbox.errors import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.asks.question import Question

NOBODY = Message("nobody was there to answer; `sandbox asks` in another terminal shows such questions")
TOO_MANY = Message("too many questions are waiting for an answer")
TOO_FAST = Message("there were too many questions a short time ago")
LATER = Message("its owner allowed it once, but the program had already given up; try again")
ENDED = Message("the sandbox has ended")
UNRECORDED = Message("the answer could not be written to the record")


class Verdict:
    """Whether it is allowed, by which answer, and why."""

    __slots__ = ("allowed", "answer", "why")

    def __init__(self, allowed: bool, answer: str, why: str) -> None:
        self.allowed = allowed
        self.answer = answer
        self.why = why

    def __bool__(self) -> bool:
        return self.allowed


def reason(question: Question) -> Message:
    """How it ended."""
    if question.answer == DENY and question.said:
        return Message("its owner was asked and denied it: {why}", why=question.said)
    if question.answer == DENY:
        return Message("its owner was asked and denied it")
    if question.state == ALLOWED:
        return Message("its owner was asked and allowed it")
    return Message("its owner was asked and did not answer within {seconds:g} s", seconds=question.seconds)
