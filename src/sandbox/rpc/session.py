"""One connection: requests in, answers and events out.

Every request has a thread of its own and begins when the requests before it have taken effect (`request_order.py`).
The reading thread itself handles requests that only pass something to a running one (`input`, `more`, `cancel`), in the
order in which they were sent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from sandbox.errors import SandboxError
from sandbox.rpc import errors
from sandbox.rpc.budget import BYTES, NO_ROOM, REQUESTS, ByteBudget, Hold
from sandbox.rpc.call import Call
from sandbox.rpc.current_sandbox import CurrentSandbox
from sandbox.rpc.errors import Fault
from sandbox.rpc.event_queue import EventQueue
from sandbox.rpc.lines import LINE_LIMIT, Line, NoRoom, TooLong, Writer, lines
from sandbox.rpc.messages import Id, Message, read_message
from sandbox.rpc.method_table import METHODS, RpcMethod
from sandbox.rpc.request_order import RequestOrder
from sandbox.rpc.reverse_calls import ReverseCalls

if TYPE_CHECKING:
    from sandbox.sandbox import Sandbox

_GRACE = 5.0  # seconds
_LAST_EVENTS = 1.0  # seconds that the client has to read its last events
_LAST_ANSWERS = 1.0  # seconds that running requests have to report that the sandbox was closed


class RpcSession:
    """Serves one connection until it ends."""

    def __init__(
        self,
        source: int | Callable[[int], bytes],
        sink: int | Callable[[memoryview], int],
        current: CurrentSandbox,
        *,
        limit: int = LINE_LIMIT,
        check: Callable[[str, Any], Any] | None = None,
        descriptor: int = -1,
    ) -> None:
        """`source` and `sink` are descriptors, or functions as `lines` and `Writer` take them; `source` gets a
        descriptor that is readable when it should return. Then `descriptor` is what tells that the client hung up.

        `check(method, params)` returns the parameters to use. It raises Fault for what this client may not do.
        """
        self.current: CurrentSandbox = current
        self.budget = ByteBudget(BYTES, current.budget)
        self.writer = Writer(sink, descriptor)
        self.events = EventQueue(self._send_event, "sandbox-rpc-events")
        self.hooks = ReverseCalls(self.writer)
        self._limit = limit
        self._check = check
        self._calls: dict[Id, Call] = {}
        self._running = 0
        self._idle = Condition()
        self._order = RequestOrder()
        self._closing: Call | None = None  # the `close` request that is running
        self._closed = False
        self._wakes, self._waking = os.pipe()
        self._source = source if isinstance(source, int) else partial(source, self._wakes)
        self._unwatch: Callable[[], None] | None = None

    def _send_event(self, happened: dict[str, Any]) -> None:
        self.writer.send({"jsonrpc": "2.0", "method": "event", "params": happened})

    def run(self) -> None:
        """Serves until the other side closes its end, or `close` was requested and answered.

        Requests that are still running after the other side's last line have a few seconds to finish, so that
        `sandbox --rpc < requests > answers` works. They have no time if nobody reads the answers any more.
        """
        try:
            for line in lines(self._source, self._limit, self.budget.hold(), self._wakes):
                if self._closed:
                    break
                if isinstance(line, TooLong):
                    self._refuse(
                        Fault(errors.LINE_TOO_LONG, "a line may have at most {limit} bytes", limit=self._limit), None
                    )
                elif isinstance(line, NoRoom):
                    self._refuse(Fault(errors.BUSY, NO_ROOM), None)
                else:
                    self._take(line)
            self.hooks.close()
            self._await_running()
        finally:
            self.hooks.close()
            if self._unwatch is not None:
                self._unwatch()
            for call in self.calls():
                call.cancel()
            self.events.close(_LAST_EVENTS)
            with self._idle:
                self._closed = True
                os.close(self._waking)
                os.close(self._wakes)

    def watch(self, sandbox: Sandbox) -> None:
        """Registers that this client answers questions to the owner, until it leaves."""
        with self._idle:
            if self._unwatch is None:
                self._unwatch = sandbox._asking().watch()
                if self._closed:
                    self._unwatch()

    def calls(self) -> list[Call]:
        """The requests that are running."""
        with self._idle:
            return list(self._calls.values())

    def call(self, id: Id) -> Call:
        """The running request of that id. Raises Fault."""
        with self._idle:
            found = self._calls.get(id)
        if found is None:
            raise Fault(errors.NO_SUCH_REQUEST, "no request {id!r} is running", id=id)
        return found

    def finish(self, call: Call, grace: float) -> None:
        """Waits at most `grace` seconds for earlier requests, then ends the sandbox and this connection.

        Meanwhile only messages that a running request needs are accepted (`input`, `signal`, a hook's answer).
        """
        self._await_others(grace)
        self.current.close()
        for other in self.calls():
            other.credit.close()  # nothing will come for a request that waits for credit or input
            other.inputs.close()
        self._await_others(_LAST_ANSWERS)
        call.reply({})
        with self._idle:
            if not self._closed:
                self._closed = True
                os.write(self._waking, b".")

    def _await_others(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        with self._idle:
            while self._running > 1 and not self.writer.hung_up() and (left := until - time.monotonic()) > 0:
                self._idle.wait(timeout=min(0.1, left))  # nothing wakes us when the other side hangs up

    # -- taking requests

    def _take(self, line: Line) -> None:
        if bytes(line[:1]) in b" \t\r" and not line.strip(b" \t\r"):
            return
        try:
            message, params = read_message(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            self._refuse(*_unreadable(line, problem))
            return
        if isinstance(message.method, UnsetType):
            if message.result is UNSET and message.error is UNSET:
                id = None if isinstance(message.id, UnsetType) else message.id
                self._refuse(Fault(errors.INVALID_REQUEST, "a request needs a method"), id)
            self.hooks.answered(message)
            return
        method = METHODS.get(message.method)
        if method is None:
            self._answer(message, _no_such_method(message.method))
            return
        try:
            asked = method.read(message.params) if params is None else params
            if self._check is not None:
                asked = self._check(message.method, asked)
            held = self.budget.hold(len(line))
        except (Fault, SandboxError) as refused:
            self._answer(message, errors.to_fault(refused))
            return
        try:
            call = self._admitted(message, method, held)
        except Fault as refused:
            held.release()
            self._answer(message, refused)
            return
        if message.method in ("create", "restore"):
            self.current.expect()
        if method.before_input:
            self._before_input(asked, call)
        if method.inline:
            self._work(method, call, asked, held)
        else:
            self._start(method, call, asked, held)

    def _before_input(self, asked: Any, call: Call) -> None:
        """Makes later input to the command that `asked` names wait until `call` has taken effect."""
        with self._idle:
            command = self._calls.get(asked.request)
        if command is not None:
            command.before_input = call.turn

    def _start(self, method: RpcMethod, call: Call, asked: Any, held: Hold) -> None:
        try:
            Thread(target=self._work, args=(method, call, asked, held), daemon=True).start()
        except RuntimeError:  # no thread can be started
            held.release()
            self._ended(call, Fault(errors.BUSY, "no further request can be run at the moment"))

    def _admitted(self, message: Message, method: RpcMethod, held: Hold) -> Call:
        assert not isinstance(message.method, UnsetType)
        # A client's hook may itself use the sandbox: its requests must not wait for the one that waits for the hook.
        unordered = method.unordered or self.hooks.waiting
        turn = self._order.unordered() if unordered else self._order.next_turn()
        call = Call(self.writer, message.id, message.method, turn, self._free, held, self.budget)
        try:
            self._register(call, message, method)
        except Fault:
            turn.done()
            raise
        return call

    def _register(self, call: Call, message: Message, method: RpcMethod) -> None:
        with self._idle:
            if self._closing is not None and message.method not in ("input", "more", "signal", "cancel", "resize"):
                raise Fault(errors.CLOSED, "the sandbox is being closed")
            if self._running >= REQUESTS:
                raise Fault(errors.BUSY, "{count} requests are running; wait for answers first", count=REQUESTS)
            if not isinstance(message.id, UnsetType):
                if message.id in self._calls:
                    raise Fault(errors.INVALID_REQUEST, "id {id!r} is still in use", id=message.id)
                self._calls[message.id] = call
            self._running += 1
            if message.method == "close":
                self._closing = call

    def _work(self, method: RpcMethod, call: Call, asked: Any, held: Hold) -> None:
        problem: BaseException | None = None
        try:
            with held:
                call.turn.wait()
                answered = method.run(self, call, asked)
                if answered is not None:
                    call.turn.done()
                    call.reply(answered)
        except BaseException as raised:  # noqa: BLE001 - whatever it was, the client gets the error, and the server goes on
            problem = self.current.explained(raised)
        self._ended(call, problem)

    def _ended(self, call: Call, problem: BaseException | None) -> None:
        call.turn.done()
        if problem is not None:
            call.fail(problem)
        if call.method in ("create", "restore"):
            self.current.settled()
        call.done()
        with self._idle:
            self._running -= 1
            self._idle.notify_all()

    def _free(self, call: Call) -> None:
        with self._idle:
            if not isinstance(call.id, UnsetType) and self._calls.get(call.id) is call:
                del self._calls[call.id]

    def _answer(self, message: Message, problem: Fault) -> None:
        if not isinstance(message.id, UnsetType):  # a notification is never answered, not even with an error
            self._refuse(problem, message.id)

    def _refuse(self, problem: Fault, id: Id | None) -> None:
        self.writer.send({"jsonrpc": "2.0", "error": problem.plain(), "id": id})

    def _await_running(self) -> None:
        until = time.monotonic() + _GRACE
        with self._idle:
            # `close` has its own grace period.
            while self._running and not self.writer.hung_up() and (self._closing or time.monotonic() < until):
                self._idle.wait(timeout=0.1)  # nothing wakes us when the other side hangs up


def _no_such_method(name: str) -> Fault:
    known = ", ".join(METHODS)
    return Fault(errors.NO_SUCH_METHOD, "no method {name!r}; there are {known}", name=name, known=known)


class _Loose(msgspec.Struct):
    """Enough of an invalid request to answer it under its id."""

    id: Id | None = None


def _unreadable(line: Line, problem: Exception) -> tuple[Fault, Id | None]:
    if not isinstance(problem, msgspec.ValidationError):
        return Fault(errors.PARSE, "not a line of JSON: {problem}", problem=problem), None
    try:
        id = msgspec.json.decode(line, type=_Loose).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        id = None
    if line.lstrip().startswith(b"["):
        return Fault(errors.INVALID_REQUEST, "batches are not supported: send one message per line"), None
    return Fault(errors.INVALID_REQUEST, "not a JSON-RPC 2.0 request: {problem}", problem=problem), id
