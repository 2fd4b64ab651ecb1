"""One request while it is being worked on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition, Event
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from sandbox.rpc import errors
from sandbox.rpc.budget import ByteBudget, Hold
from sandbox.rpc.errors import Fault
from sandbox.rpc.flow import Credit
from sandbox.rpc.lines import Writer
from sandbox.rpc.request_order import Turn

if TYPE_CHECKING:
    from sandbox.protocols import Process

STREAMS = ("exec", "exec_stream", "exec_pipe", "exec_tty", "connect", "dial", "view", "gate")
_WAITING_INPUT = 16 * 2**20  # bytes that a command was sent and has not read yet
_ENTRY = 512  # what a piece of input takes besides: it may be empty


class Call:
    """A request: where its answers go and, if it runs one, its command or connection."""

    def __init__(
        self,
        writer: Writer,
        id: int | str | UnsetType,
        method: str,
        turn: Turn,
        free: Callable[[Call], None],
        held: Hold,
        budget: ByteBudget,
    ) -> None:
        self.id = id
        self.turn = turn
        self.method = method
        self.cancelled = False
        self.credit = Credit()
        self._held = held  # what it takes of the connection's memory, until it is answered
        self.inputs = Inputs(budget)
        self.before_input: Turn | None = None  # of a request that must take effect before input that was sent after it
        self._writer = writer
        self._free = free
        self._process: Process | None = None
        self._on_cancel: Callable[[], object] | None = None
        self._started = Event()

    def piece(self, result: dict[str, Any]) -> None:
        """Sends one of several results. (A notification gets no answers at all.)"""
        if self.id is not UNSET:
            self._writer.send({"jsonrpc": "2.0", "result": result, "id": self.id})

    def output(self, name: str, data: bytes) -> None:
        """Sends output under `name`, in pieces as the client's credit allows; waits for credit."""
        if self.id is UNSET:
            return  # nobody reads the output of a notification, so nobody would grant credit
        left = memoryview(data)
        while left and (size := self.credit.take(len(left))):
            self.piece({name: left[:size]})
            left = left[size:]

    def holds(self, size: int) -> bool:
        """Takes `size` more bytes of memory for the answer. False when the connection has no more."""
        return self._held.grow(size)

    def reply(self, result: dict[str, Any]) -> None:
        """Sends the last, or only, result."""
        self.done()
        self.piece(result)

    def reply_content(self, content: bytes, more: dict[str, Any]) -> None:
        """Sends a result that is mostly one file's content."""
        self.done()
        if not isinstance(self.id, UnsetType):
            self._writer.send_content(self.id, content, more)

    def fail(self, problem: BaseException) -> None:
        """Sends an error."""
        self.done()
        if self.id is not UNSET:
            self._writer.send({"jsonrpc": "2.0", "error": errors.to_fault(problem).plain(), "id": self.id})

    @property
    def gone(self) -> bool:
        """Whether the client is gone, so that nobody reads the answers."""
        return self._writer.broken

    def runs(self, process: Process | None, on_cancel: Callable[[], object]) -> None:
        """From now on `signal` and `resize` reach `process`, and cancelling calls `on_cancel`.

        The request has then taken effect, and the next one may begin.
        """
        self._process = process
        self._on_cancel = on_cancel
        self._started.set()
        self.turn.done()
        if self.cancelled:
            on_cancel()

    def process(self) -> Process:
        """The command; waits until it runs. Raises Fault when this request runs none."""
        self._started.wait()
        if self._process is None:
            raise Fault(errors.NO_SUCH_REQUEST, "{method} runs no command", method=self.method)
        return self._process

    def cancel(self) -> None:
        """Kills the command, now or as soon as it runs. Any other request goes on, but later requests need not wait."""
        self.cancelled = True
        self.credit.close()
        if self._on_cancel is not None:
            self._on_cancel()
        elif self.method not in STREAMS:
            self.turn.done()

    def done(self) -> None:
        """Frees the id *before* the last answer is sent: a client that has read it may use the id again."""
        self._free(self)
        self._process = self._on_cancel = None
        self._started.set()
        self.credit.close()
        self.inputs.close()


_Input = tuple[bytes, bool, Callable[[Exception | None], None], Turn | None, Hold]


class Inputs:
    """Input that a command has not been given yet, in the order in which it was sent."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._queue: deque[_Input] = deque()
        self._held = 0
        self._changed = Condition()
        self._closed = False

    def put(self, data: bytes, end: bool, answer: Callable[[Exception | None], None], after: Turn | None) -> None:
        """Queues input. The command gets it once `after` is over; then `answer` is called. Raises Fault when too much
        input is waiting."""
        with self._changed:
            if self._closed:
                raise Fault(errors.NO_SUCH_REQUEST, "the command reads no more input")
            if self._held + len(data) > _WAITING_INPUT:
                raise Fault(errors.BUSY, "the command does not read its input; wait for the answer to each `input`")
            hold = self._budget.hold(len(data) + _ENTRY)
            self._held += len(data)
            self._queue.append((data, end, answer, after, hold))
            self._changed.notify()

    def feed(self, write: Callable[[bytes], object], finish: Callable[[], object]) -> None:
        """Writes all queued input until the end of input (then calls `finish`) or `close`."""
        try:
            while (one := self._next()) is not None:
                data, end, answer, after, hold = one
                with hold:
                    if after is not None:
                        after.over.wait()
                    try:
                        if data:
                            write(data)
                        if end:
                            finish()
                    except (OSError, ValueError) as problem:  # ValueError: closed meanwhile
                        answer(problem if isinstance(problem, OSError) else _no_more_input())
                        return
                answer(None)
                if end:
                    return
        finally:
            self.close()

    def close(self) -> None:
        """Takes no more input; input that is still waiting is answered with an error."""
        with self._changed:
            self._closed = True
            left, self._queue = self._queue, deque()
            self._changed.notify()
        for _, _, answer, _, hold in left:
            hold.release()
            answer(_no_more_input())

    def _next(self) -> _Input | None:
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            if not self._queue:
                return None
            one = self._queue.popleft()
            self._held -= len(one[0])
            return one


def _no_more_input() -> Fault:
    return Fault(errors.NO_SUCH_REQUEST, "the command reads no more input")
