"""A running `Pool.map`: threads that take items, each item in a sandbox of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Sized
from threading import Condition, Thread, current_thread
from typing import TYPE_CHECKING, Any

from sandbox import arguments
from sandbox.pool.outcome import HOPELESS, Outcome, Retries, failed, judged
from sandbox.pool.progress import Bar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Self

    from sandbox.arguments import Command
    from sandbox.sandbox import Sandbox

    Work = Command | Callable[[Sandbox, Any], Any]
    Give = Callable[[Any], Mapping[str, Any]] | Mapping[str, Any] | None


class Mapped:
    """The outcomes of `Pool.map`, as they come. Leaving the `with`, or an error while iterating, cancels the rest.

    `outcomes()` returns those that are done so far, in the order of the items, whatever happens to the others. Items
    without a length (a generator) may be endless: then an outcome is forgotten once the loop has it, and no further
    item is begun while many wait for the loop.
    """

    def __init__(
        self,
        get: Callable[..., Sandbox],
        work: Work,
        items: Iterable[Any],
        concurrency: int,
        timeout: float | None,
        retries: Mapping[str, int],
        give: Give,
        progress: bool | None,
    ) -> None:
        self._get = get
        self._run = runner(work, timeout)
        self._retries = retries
        self._give = give
        self._changed = Condition()
        self._items = enumerate(items)
        self._taking = Condition()  # held while the caller's iterable produces the next item
        self._keeps = isinstance(items, Sized)
        self._most_unread = max(concurrency * 2, 16)
        self._done: list[Outcome] = []  # only if `_keeps`
        self._unread: deque[Outcome] = deque()
        self._under_way: dict[int, Sandbox] = {}
        self._cancelled = False
        self._problem: BaseException | None = None
        self._bar = Bar(items, progress)
        self._threads = [Thread(target=self._work, name="sandbox-map", daemon=True) for _ in range(concurrency)]
        self._running = concurrency
        for one in self._threads:
            one.start()

    # -- for the caller

    def __iter__(self) -> Iterator[Outcome]:
        try:
            while (outcome := self._next()) is not None:
                yield outcome
        except BaseException:
            self.cancel()
            raise

    def outcomes(self) -> list[Outcome]:
        """Returns the outcomes so far, in the order of the items."""
        with self._changed:
            return sorted(self._done if self._keeps else self._unread, key=lambda one: one.index)

    def results(self) -> list[Outcome]:
        """Waits for all, and returns the outcomes in the order of the items (of a generator: those not returned yet).

        Raises any error that would meet every item, such as ConfigError. Another exception meanwhile cancels the rest.
        """
        rest = list(self)
        return self.outcomes() if self._keeps else sorted(rest, key=lambda one: one.index)

    def cancel(self) -> None:
        """Ends every sandbox in use, and begins no further item. Idempotent; returns when nothing is left.

        A function that closing its sandbox does not interrupt is waited for.
        """
        with self._changed:
            self._cancelled = True
            under_way = list(self._under_way.values())
            self._changed.notify_all()
        problems: list[Exception] = []
        for one in under_way:
            try:
                one.close()
            except Exception as problem:  # noqa: BLE001 - the others must be ended, too
                problems.append(problem)
        for thread in self._threads:
            if thread is not current_thread():
                thread.join()
        self._bar.close()
        if problems:
            raise problems[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def _next(self) -> Outcome | None:
        with self._changed:
            while not self._unread and self._running:
                self._changed.wait()
            if self._unread:
                self._changed.notify_all()
                return self._unread.popleft()
            problem = self._problem
        self._bar.close()
        if problem is not None:
            raise problem
        return None

    # -- the threads

    def _work(self) -> None:
        try:
            while (taken := self._take()) is not None:
                self._tell(self._tried(*taken))
        except BaseException as problem:  # noqa: BLE001 - it is raised in the caller
            self._stop(problem)
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _take(self) -> tuple[int, Any] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._cancelled or self._keeps or len(self._unread) < self._most_unread)
        with self._taking:
            return None if self._cancelled else next(self._items, None)

    def _tell(self, outcome: Outcome) -> None:
        with self._changed:
            if self._keeps:
                self._done.append(outcome)
            self._unread.append(outcome)
            self._changed.notify_all()
        self._bar.done(outcome.ok)

    def _stop(self, problem: BaseException) -> None:
        """Begins no further item, because every one would meet this problem."""
        with self._changed:
            self._cancelled = True
            self._problem = self._problem or problem
            self._changed.notify_all()

    def _tried(self, index: int, item: Any) -> Outcome:
        retries = Retries(self._retries)
        while True:
            outcome = self._once(index, item, retries.attempts)
            if self._cancelled and not outcome.ok:
                outcome.reason = "cancelled"
            if not retries.again(outcome):
                return outcome

    def _once(self, index: int, item: Any, attempts: int) -> Outcome:
        given = given_for(self._give, item)
        try:
            sandbox = self._get(**given)
        except HOPELESS:
            raise
        except Exception as problem:  # noqa: BLE001 - it is this item's, and others may succeed
            return failed(index, item, problem, attempts)
        try:
            with self._changed:
                self._under_way[index] = sandbox
                cancelled = self._cancelled
            if cancelled:
                return Outcome(index, item, reason="cancelled", attempts=attempts)
            return judged(index, item, self._run(sandbox, item), attempts)
        except Exception as problem:  # noqa: BLE001 - what the work raised is its outcome
            return failed(index, item, problem, attempts)
        finally:
            sandbox.close()
            with self._changed:
                self._under_way.pop(index, None)


def runner(work: Work, timeout: float | None) -> Callable[[Sandbox, Any], Any]:
    """The function that does the work for a sandbox and an item. Raises InvalidArgument."""
    if callable(work):
        return work
    arguments.words(work)
    return lambda sandbox, item: sandbox.exec(with_item(work, item), timeout=timeout)


def with_item(command: Command, item: Any) -> list[str | bytes]:
    """The command for one item. The shell gets it as "$1": it is never read as shell text."""
    words = arguments.words(command)
    last = item if isinstance(item, str | bytes) else str(item)
    return ["/bin/sh", "-c", words, "sh", last] if isinstance(words, str) else [*words, last]


def given_for(give: Give, item: Any) -> dict[str, Any]:
    """The arguments for `get`."""
    return dict((give(item) if callable(give) else give) or {})
