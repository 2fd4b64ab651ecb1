"""One request while it is being worked on."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from threading import Condition, Event
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from sandbox.rpc import faults
from sandbox.rpc.faults import Fault
from sandbox.rpc.lines import Writer
from sandbox.rpc.turns import Turn

if TYPE_CHECKING:
    from sandbox.guest.process import Process

COMMANDS = ("exec", "exec_stream", "exec_pipe", "exec_tty")
_WAITING_INPUT = 16 * 2**20  # bytes that a command has been sent and has not read


class Call:
    """A request: where its answers go, and the command it runs, if it runs one."""

    def __init__(
        self, writer: Writer, id: int | str | UnsetType, method: str, turn: Turn, free: Callable[[Call], None]
    ) -> None:
        self.id = id
        self.turn = turn
        self.method = method
        self.cancelled = False
        self.inputs = Inputs()
        self._writer = writer
        self._free = free
        self._process: Process | None = None
        self._on_cancel: Callable[[], None] | None = None
        self._started = Event()

    def piece(self, result: dict[str, Any]) -> None:
        """Sends one of several results. (A notification gets no answers at all.)"""
        if self.id is not UNSET:
            self._writer.send({"jsonrpc": "2.0", "result": result, "id": self.id})

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
            self._writer.send({"jsonrpc": "2.0", "error": faults.fault(problem).plain(), "id": self.id})

    @property
    def gone(self) -> bool:
        """Whether nobody hears the answers any more."""
        return self._writer.broken

    def runs(self, process: Process, on_cancel: Callable[[], None] | None = None) -> None:
        """From now on `cancel`, `signal`, `resize` and `input` reach `process`; cancelling kills it, or `on_cancel`.

        It runs: the next request may begin.
        """
        self._process = process
        self._on_cancel = on_cancel or process.kill
        self._started.set()
        self.turn.over()
        if self.cancelled:
            self._on_cancel()

    def process(self) -> Process:
        """The command, as soon as it runs. Raises Fault when this request runs none."""
        self._started.wait()
        if self._process is None:
            raise Fault(faults.NO_SUCH_REQUEST, f"{self.method} runs no command")
        return self._process

    def cancel(self) -> None:
        """Kills the command, now or as soon as it runs. What runs none is only waited for no longer."""
        self.cancelled = True
        if self._on_cancel is None and self.method not in COMMANDS:
            self.turn.over()
        if self._on_cancel is not None:
            self._on_cancel()

    def done(self) -> None:
        """Frees the id, *before* the last answer is out: whoever has read that may use the id again."""
        self._free(self)
        self._process = self._on_cancel = None
        self._started.set()
        self.inputs.close()


class Inputs:
    """What a command is still to be given on its stdin, in the order it was sent."""

    def __init__(self) -> None:
        self._queue: deque[tuple[bytes, bool, Callable[[Exception | None], None]]] = deque()
        self._held = 0
        self._changed = Condition()
        self._closed = False

    def put(self, data: bytes, end: bool, answer: Callable[[Exception | None], None]) -> None:
        """Queues; `answer` is called when the command has been given it. Raises Fault when too much is waiting."""
        with self._changed:
            if self._closed:
                raise Fault(faults.NO_SUCH_REQUEST, "the command reads no more input")
            if self._held + len(data) > _WAITING_INPUT:
                raise Fault(faults.BUSY, "the command does not read its input; wait for the answer to each `input`")
            self._held += len(data)
            self._queue.append((data, end, answer))
            self._changed.notify()

    def feed(self, descriptor: int, at_end: bytes = b"") -> None:
        """Writes everything that comes to `descriptor`, until the end was sent or `close`; then closes it."""
        try:
            while (one := self._next()) is not None:
                data, end, answer = one
                try:
                    _write_all(descriptor, data + at_end if end else data)
                except OSError as problem:
                    answer(problem)
                    return
                answer(None)
                if end:
                    return
        finally:
            os.close(descriptor)
            self.close()

    def close(self) -> None:
        """Takes no more; whoever still waits hears that the command has ended."""
        with self._changed:
            self._closed = True
            left, self._queue = self._queue, deque()
            self._changed.notify()
        for _, _, answer in left:
            answer(Fault(faults.NO_SUCH_REQUEST, "the command reads no more input"))

    def _next(self) -> tuple[bytes, bool, Callable[[Exception | None], None]] | None:
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            if not self._queue:
                return None
            one = self._queue.popleft()
            self._held -= len(one[0])
            return one


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
