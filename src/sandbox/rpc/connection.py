"""The client's side of a connection: sends requests, and passes each answer to the thread that waits for it."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore, Lock, Thread
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import msgspec

from sandbox.errors import SandboxClosed, SandboxError
from sandbox.rpc.client_events import ClientEvents
from sandbox.rpc.errors import to_exception
from sandbox.rpc.lines import ANSWER_LIMIT, Line, NoRoom, TooLong, Writer, lines
from sandbox.sockets import connect_in

if TYPE_CHECKING:
    from typing import Self

    from sandbox.registry.registry import Entry

T = TypeVar("T")


class _Answer(msgspec.Struct):
    """A message from the server: the answer to a request, an event, or a request of its own (a hook)."""

    id: int | str | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: dict[str, Any] | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"null")


class Content(msgspec.Struct):
    """The answer of `read_file`."""

    content: bytes
    size: int


class _Large(msgspec.Struct):
    """The same as a whole line. Lines that long are parsed once, not twice."""

    id: int
    result: Content


class Received(msgspec.Struct):
    """An answer of `dial`: data, the end of the data (`eof`), or the end of the connection (`end`)."""

    data: bytes = b""
    eof: bool = False
    end: bool = False


_LARGE = 2**16
_HOOKS = 256  # at a time: the other side must not start threads of ours without end


class DescriptorOwner(Protocol):
    """The object that owns a connection's descriptors, such as a socket."""

    def shutdown(self, how: int, /) -> None:
        """Ends reading and writing, and wakes threads that do either. Raises OSError when it has ended already."""

    def close(self) -> None:
        """Closes the descriptors."""


class Connection:
    """A connection to one server. `finish` ends it."""

    def __init__(
        self,
        source: int | Callable[[], bytes],
        sink: int | Callable[[memoryview], int],
        finish: Callable[[], object],
        kept: DescriptorOwner | None = None,
    ) -> None:
        """`source` and `sink` are descriptors, or functions as `lines` and `Writer` take them; `kept` owns them."""
        self.events = ClientEvents()
        self.hook: Callable[[dict[str, Any]], dict[str, Any]] = lambda _: {"blocked": "this client has no hooks"}
        self.admit_event: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda happened: happened
        self._hooks = BoundedSemaphore(_HOOKS)
        self.ended = False
        self.on_end: Callable[[], object] = lambda: None  # called once, when it has ended for any reason
        self.lost: type[SandboxClosed] = SandboxClosed  # what to raise after an end that nobody here asked for
        self._source = source
        self._writer = Writer(sink)
        self._finish = finish
        self._kept = kept
        self._finished = False
        self._next = 0
        self._waiting: dict[int, SimpleQueue[_Answer | _Large | None]] = {}
        self._lock = Lock()
        self._reader = Thread(target=self._read, name="sandbox-client", daemon=True)
        self._reader.start()

    @classmethod
    def start(cls, command: Sequence[str]) -> Self:
        """Starts a server, which ends with the connection. Raises SandboxError."""
        import subprocess

        try:
            server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as problem:
            raise SandboxError(
                "cannot start {command}: {reason}; is it on the PATH?", command=command[0], reason=problem.strerror
            ) from problem
        assert server.stdin is not None and server.stdout is not None
        stdin, stdout = server.stdin, server.stdout

        def finish() -> None:
            stdin.close()  # the server's end
            server.wait()
            stdout.close()

        return cls(stdout.fileno(), stdin.fileno(), finish)

    @classmethod
    def to_socket(cls, entry: Entry) -> Self:
        """Connects to a running sandbox. Raises SandboxError when it cannot be reached."""
        if not entry.running:  # a forked child of its owner may still hold the socket open without answering
            raise SandboxError("{id} is {status}; only a running sandbox can be used", id=entry.id, status=entry.status)
        line = socket.socket(socket.AF_UNIX)
        try:
            connect_in(line, entry.path, "socket")
        except OSError as problem:
            line.close()
            raise SandboxError(
                "{id} is {status} and cannot be reached: {reason}",
                id=entry.id,
                status=entry.status,
                reason=problem.strerror,
            ) from problem

        def finish() -> None:
            line.shutdown(socket.SHUT_RDWR)

        return cls(line.fileno(), line.fileno(), finish, line)

    # -- sending

    @overload
    def call(self, method: str, params: dict[str, Any]) -> Any: ...
    @overload
    def call(self, method: str, params: dict[str, Any], kind: type[T]) -> T: ...
    def call(self, method: str, params: dict[str, Any], kind: Any = Any) -> Any:
        """Sends a request and returns its one answer, decoded as `kind`. Raises the exception of an error response."""
        with self.stream(method, params) as stream:
            return stream.last(kind)

    def stream(self, method: str, params: dict[str, Any]) -> AnswerStream:
        """Sends a request with many answers. Raises SandboxClosed."""
        answers: SimpleQueue[_Answer | _Large | None] = SimpleQueue()
        with self._lock:
            if self.ended:
                raise self.gone(SandboxClosed("the connection to the sandbox has ended"))
            self._next += 1
            id = self._next
            self._waiting[id] = answers
        self._writer.send({"jsonrpc": "2.0", "method": method, "params": params, "id": id})
        return AnswerStream(self, id, answers)

    def pipelined(self, requests: Iterable[tuple[str, dict[str, Any]]], ahead: int, kind: Any = Any) -> Iterator[Any]:
        """The answers to many requests in order, with at most `ahead` requests unanswered at a time."""
        under_way: deque[AnswerStream] = deque()
        try:
            for method, params in requests:
                under_way.append(self.stream(method, params))
                if len(under_way) >= ahead:
                    yield under_way.popleft().last(kind)
            while under_way:
                yield under_way.popleft().last(kind)
        finally:
            for stream in under_way:
                stream.close()

    def gone(self, problem: SandboxClosed) -> SandboxClosed:
        """The error for a connection that has ended."""
        return problem if self._finished or type(problem) is self.lost else self.lost(*problem.args)

    def forget(self, id: int) -> None:
        """Drops further answers to the request of that id."""
        with self._lock:
            self._waiting.pop(id, None)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """A request that wants no answer."""
        self._writer.send({"jsonrpc": "2.0", "method": method, "params": params})

    def abandon(self) -> None:
        """Called when the other side is known to be gone though its end is still open: waiting threads get an error.
        Idempotent."""
        if self._kept is not None:
            try:
                self._kept.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        """Ends the conversation. Idempotent."""
        with self._lock:
            if self._finished:
                return
            self._finished = True
        self._writer.broken = True  # nobody needs a hook's late answer
        try:
            self._finish()
        except OSError:
            pass  # the other side closed it first
        self._writer.close()
        self._reader.join()
        if self._kept is not None:
            self._kept.close()

    # -- receiving

    def _read(self) -> None:
        try:
            self._read_lines()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # the other side does not speak JSON-RPC
        finally:
            self._end()

    def _read_lines(self) -> None:
        decoder = msgspec.json.Decoder(_Answer)
        for line in lines(self._source, ANSWER_LIMIT):
            if isinstance(line, TooLong | NoRoom):
                break
            if len(line) > _LARGE and self._sort_large(line):
                continue
            self._sort(decoder.decode(line))

    def _end(self) -> None:
        """Wakes everybody who waits for an answer: none will come."""
        self.events.close()
        with self._lock:
            self.ended = True
            waiting, self._waiting = self._waiting, {}
        for answers in waiting.values():
            answers.put(None)
        self.on_end()

    def _sort_large(self, line: Line) -> bool:
        try:
            large = msgspec.json.decode(line, type=_Large)
        except msgspec.ValidationError:
            return False  # something else that is long
        with self._lock:
            answers = self._waiting.get(large.id)
        if answers is not None:
            answers.put(large)
        return True

    def _sort(self, answer: _Answer) -> None:
        if answer.method == "event":
            happened = self.admit_event(msgspec.json.decode(answer.params, type=dict[str, Any]))
            if happened is not None:
                self.events.emit(happened)
        elif answer.method == "hook":
            if self._hooks.acquire(blocking=False):
                Thread(target=self._hook, args=(answer,), daemon=True).start()
            else:
                self._writer.send(_hook_answer(answer, {"blocked": "too many hooks at a time"}))
        elif isinstance(answer.id, int):
            with self._lock:
                answers = self._waiting.get(answer.id)
            if answers is not None:
                answers.put(answer)

    def _hook(self, asked: _Answer) -> None:
        try:
            result = self.hook(msgspec.json.decode(asked.params, type=dict[str, Any]))
        finally:
            self._hooks.release()
        self._writer.send(_hook_answer(asked, result))


def _hook_answer(asked: _Answer, result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "result": result, "id": asked.id}


class AnswerStream:
    """The answers to one request."""

    def __init__(self, connection: Connection, id: int, answers: SimpleQueue[_Answer | _Large | None]) -> None:
        self.id = id
        self._connection = connection
        self._answers = answers
        self._finished = False

    def next(self) -> dict[str, Any]:
        """The next answer, as plain data."""
        answer: dict[str, Any] = msgspec.json.decode(self.next_raw())
        return answer

    def next_received(self) -> Received:
        """The next answer of a `dial`."""
        return msgspec.json.decode(self.next_raw(), type=Received)

    def next_raw(self, timeout: float | None = None) -> msgspec.Raw:
        """The next answer, for the caller to decode. Raises the exception of an error response, and TimeoutError."""
        answer = self._next(timeout)
        assert isinstance(answer, _Answer)
        return answer.result

    def last(self, kind: Any) -> Any:
        """The next answer, which is the last one, as `kind`. Raises the exception of an error response."""
        answer = self._next()
        self.finished()
        return answer.result if isinstance(answer, _Large) else msgspec.json.decode(answer.result, type=kind)

    def _next(self, timeout: float | None = None) -> _Answer | _Large:
        try:
            answer = self._answers.get(timeout=timeout)
        except Empty:
            raise TimeoutError("the command still runs") from None
        if answer is None:
            self.finished()
            raise self._connection.gone(SandboxClosed("the connection to the sandbox ended before it answered"))
        if isinstance(answer, _Answer) and answer.error is not None:
            self.finished()
            raise to_exception(answer.error)
        return answer

    def finished(self) -> None:
        """Called when the last answer has arrived."""
        self._finished = True
        self._connection.forget(self.id)

    def close(self) -> None:
        """Cancels the request if it is still running."""
        if not self._finished:
            self.finished()
            self._answers.put(None)  # for a thread that still waits here
            self._connection.notify("cancel", {"request": self.id})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
