"""How one item of `Pool.map` went, and which reasons to try it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandbox.errors import (
    CommandError,
    ConfigError,
    Denied,
    EngineUnavailable,
    GuestError,
    InvalidArgument,
    LimitUnavailable,
    SandboxClosed,
    WallError,
)
from sandbox.fields import Fields
from sandbox.pool.shelf import MOST
from sandbox.result import ExecResult

if TYPE_CHECKING:
    from collections.abc import Mapping

REASONS = ("lost", "timeout", "memory", "failed", "error", "cancelled")
RETRIES = {"lost": 2}  # not the item's fault
LOST = (SandboxClosed, WallError, GuestError)
HOPELESS = (ConfigError, InvalidArgument, Denied, EngineUnavailable, LimitUnavailable)  # from `get`, for every item


class Outcome(Fields):
    """One item's end. `reason` is "" when it went well, else "lost" (the sandbox ended), "timeout", "memory", "failed"
    (an exit status other than 0), "error" (the function raised) or "cancelled". `value` is the command's ExecResult or
    what the function returned; `error` is what was raised."""

    __slots__ = fields = ("index", "item", "value", "error", "reason", "attempts")

    def __init__(
        self, index: int, item: Any, value: Any = None, error: BaseException | None = None, reason: str = "",
        attempts: int = 1,
    ) -> None:  # fmt: skip
        self.index = index  # its place among the items
        self.item = item
        self.value = value
        self.error = error
        self.reason = reason
        self.attempts = attempts

    @property
    def ok(self) -> bool:
        """Whether it went well."""
        return not self.reason


def judged(index: int, item: Any, value: Any, attempts: int) -> Outcome:
    """The outcome of an item whose work returned."""
    return Outcome(index, item, value, None, _of_result(value) if isinstance(value, ExecResult) else "", attempts)


def failed(index: int, item: Any, error: BaseException, attempts: int) -> Outcome:
    """The outcome of an item whose work raised."""
    value, reason = None, "lost" if isinstance(error, LOST) else "error"
    if isinstance(error, CommandError):
        value, reason = error.result, "failed" if error.result is None else _of_result(error.result) or "failed"
    return Outcome(index, item, value, error, reason, attempts)


def _of_result(result: ExecResult) -> str:
    if result.timed_out:
        return "timeout"
    if result.out_of_memory:
        return "memory"
    return "failed" if result.exit_code != 0 else ""


class Retries:
    """How often one item may be tried again, by reason."""

    def __init__(self, allowed: Mapping[str, int]) -> None:
        self._left = dict(allowed)
        self.attempts = 1

    def again(self, outcome: Outcome) -> bool:
        """Whether to try once more after `outcome`."""
        if self._left.get(outcome.reason, 0) <= 0:
            return False
        self._left[outcome.reason] -= 1
        self.attempts += 1
        return True


def checked_concurrency(asked: int | None, size: int) -> int:
    """How many items are worked on at a time: by default the pool's size. Raises InvalidArgument."""
    most = size if asked is None else asked
    if type(most) is not int or not 0 < most <= MOST:
        raise InvalidArgument("concurrency must be a number from 1 to {most}", most=MOST)
    return most


def checked_retries(retries: Mapping[str, int] | None) -> Mapping[str, int]:
    """The retries for each reason; by default those of a lost sandbox. Raises InvalidArgument."""
    if retries is None:
        return RETRIES
    for reason, count in retries.items():
        if reason not in REASONS[:-1] or type(count) is not int or count < 0:
            raise InvalidArgument(
                "retries are numbers for {reasons}, not {given!r}", reasons=", ".join(REASONS[:-1]), given=dict(retries)
            )
    return dict(retries)
