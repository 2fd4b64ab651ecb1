"""The host's requests to a framed guest, one object each: a file operation, a command, a connection inwards.

Each has a line, on which our `Process` or `Guest` waits for the same frames that it would get where descriptors
cross, and the local ends of its streams. Each frame from the guest is checked: it must be allowed at that point.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from abc import ABC, abstractmethod

from sandbox.errors import GuestError, SandboxClosed
from sandbox.guest.channel import Channel, broken
from sandbox.guest.streams import Descriptor, Sink, SocketEnd, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    from sandbox.guest.channel import Loop

    class BridgeAccess(Protocol):
        """What a job needs from the bridge. `full` is set while the guest does not read what it was sent. A job calls
        `expect` when the guest has to go on with it in some time, `over` when the guest has sent its last frame about
        it, and `gone` when nothing is left of it."""

        loop: Loop
        full: bool

        def send(self, message: dict[str, object]) -> None: ...

        def expect(self, job: Job, within: float | None) -> None: ...

        def over(self, job: Job) -> None: ...

        def gone(self, job: Job) -> None: ...


_LINE_MOST = 2**16  # bytes about one command that nobody has read yet
ANSWER_MOST = 120.0  # seconds for a file operation, a connection, or the start of a command
END_MOST = 30.0  # seconds for the end of a command whose time is up


class Job:
    """A request in progress. A file operation needs no more than this: one answer, and it is over."""

    def __init__(self, way: BridgeAccess, number: int, line: socket.socket | None) -> None:
        self.way = way
        self.number = number
        self.answered = False  # the guest has sent its last frame
        self._line: Channel | None = Channel(line) if line is not None else None
        self._closed = False
        if line is not None:
            way.expect(self, ANSWER_MOST)

    # -- what the guest says

    def heard(self, message: dict[str, Any]) -> None:
        """Handles a frame. Raises GuestError for a frame that is not allowed now."""
        if message["t"] not in ("done", "failed"):
            raise GuestError("the guest answered {kind!r}", kind=message["t"])
        self.last(message)

    def overdue(self) -> None:
        """The guest should have gone on by now. May raise GuestError: then nothing else is expected of it, either."""
        if not self.answered:
            self.tell({"t": "failed", "errno": errno.ETIMEDOUT})
            self.abandoned()

    def last(self, message: dict[str, Any] | None) -> None:
        """Passes on the guest's last frame about this job."""
        self.answered = True
        self.way.over(self)
        if message is not None:
            self.tell(message)

    # -- the line

    def tell(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Sends a message on the line, if somebody still listens."""
        if self._line is not None:
            self._line.send(message, fds)
            if self._line.queued > _LINE_MOST and not self.answered:
                raise GuestError("the guest says more about a command than anybody can hear")
        else:
            for fd in fds:
                os.close(fd)

    def ask(self, message: dict[str, object]) -> None:
        """Sends a message to the guest, as long as it knows this job."""
        if not self.answered:
            self.way.send({**message, "id": self.number})

    def _line_ready(self) -> None:
        assert self._line is not None
        self._line.flush()
        try:
            for message, _ in self._line.receive():
                self.ask(message)
        except (SandboxClosed, GuestError):
            self.abandoned()
        self.settle()

    def abandoned(self) -> None:
        """Nobody listens any more, so the request is cancelled."""
        self.ask({"t": "cancel"})
        self.drop_line()

    def drop_line(self) -> None:
        if self._line is not None:
            self.way.loop.forget(self._line.fileno())
            self._line.close()
            self._line = None

    # -- its life

    def settle(self) -> None:
        """Call this after anything has happened: waits for what can happen next, and ends when nothing can."""
        if self._closed:
            return
        if self.finished():
            self.close()
        else:
            self.arm()

    def finished(self) -> bool:
        return self.answered and (self._line is None or not self._line.queued)

    def arm(self) -> None:
        """Watches for what can happen next."""
        if self._line is not None:
            events = (select.POLLOUT if self._line.queued else 0) | (0 if self.way.full else select.POLLIN)
            self.way.loop.watch(self._line.fileno(), events, self._line_ready)

    def fail(self, problem: GuestError) -> None:
        """The guest broke the protocol: whoever waits gets an error."""
        if self._line is not None:
            self._line.send(broken(problem))
        self.close()

    def close(self) -> None:
        """Releases everything. Idempotent."""
        self._closed = True
        self.drop_line()
        self.way.gone(self)


class StreamJob(Job, ABC):
    """A request with streams: a command, or a connection."""

    def __init__(self, way: BridgeAccess, number: int, line: socket.socket | None) -> None:
        super().__init__(way, number, line)
        self._begun = False
        self._source: Source | None = None
        self._sinks: dict[int, Sink] = {}

    def _open(self, source: Descriptor, sinks: Sequence[Descriptor], *, tell_end: bool) -> None:
        self._source = Source(self.way.loop, source, self._feed, tell_end)
        for number, descriptor in enumerate(sinks, 1):
            self._sinks[number] = self._sink(number, descriptor)

    def _sink(self, number: int, descriptor: Descriptor) -> Sink:
        sink = Sink(self.way.loop, descriptor, lambda more: self.ask({"t": "credit", "fd": number, "n": more}))
        sink.drained = self.settle
        sink.closed = lambda: self._unread(number)
        return sink

    def _feed(self, data: bytes) -> None:
        self.ask({"t": "in", "data": data})
        self.settle()

    def _unread(self, number: int) -> None:
        """Nobody reads an output any more."""
        self.ask({"t": "closed", "fd": number})
        self.settle()

    def heard(self, message: dict[str, Any]) -> None:
        kind, number = message["t"], message.get("fd")
        if not self._begun:
            self._first(message)
        elif kind == "out":
            data, sink = message.get("data"), self._sinks.get(number) if type(number) is int else None
            if sink is None or not isinstance(data, bytes):
                raise GuestError("the guest sent output of a stream that is not there")
            sink.put(data)
        elif kind == "credit" and number == 0 and self._source is not None:
            self._source.give(message.get("n"))
        elif kind == "closed" and number == 0 and self._source is not None:
            self._source.close()
        else:
            self._more(message)

    @abstractmethod
    def _first(self, message: dict[str, Any]) -> None:
        """Handles the guest's first answer. Raises GuestError for a frame that may not come first."""

    def _more(self, message: dict[str, Any]) -> None:
        """Handles frames that only one kind of job may get. Raises GuestError for the rest."""
        raise GuestError("the guest said {kind!r} about a stream", kind=message["t"])

    def _end_input(self) -> None:
        if self._source is not None:
            self._source.close()

    def abandoned(self) -> None:
        self._end_input()
        for sink in self._sinks.values():
            sink.discard()
        super().abandoned()

    def finished(self) -> bool:
        return super().finished() and self._drained()

    def _drained(self) -> bool:
        return all(sink.empty for sink in self._sinks.values())

    def arm(self) -> None:
        if self._source is not None:
            self._source.arm(self.way.full)
        super().arm()

    def close(self) -> None:
        self._closed = True
        self._end_input()
        for sink in self._sinks.values():
            sink.flush()
            sink.close()
        super().close()


class CommandJob(StreamJob):
    """A command, on three local descriptors, or on a socket that stands for its terminal.

    `joined`: the guest sends its errors as output, since both go to the same place.
    """

    def __init__(
        self,
        way: BridgeAccess,
        number: int,
        line: socket.socket,
        stdio: Sequence[int],
        timeout_ms: int | None = None,
        *,
        joined: bool = False,
    ) -> None:
        super().__init__(way, number, line)
        self._timeout_ms = timeout_ms
        self._exit: dict[str, Any] | None = None
        self._terminal: socket.socket | None = None
        if stdio:
            source = Descriptor(stdio[0], os.O_RDONLY)
            sinks = [Descriptor(fd, os.O_WRONLY) for fd in stdio[1:]]
            if joined:
                sinks.pop().close()
            self._open(source, sinks, tell_end=True)
        else:
            ours, self._terminal = socket.socketpair()
            with ours:
                # Its end is not reported: whoever closes a terminal's last descriptor also closes the line.
                self._open(SocketEnd(ours), [SocketEnd(ours)], tell_end=False)

    def _first(self, message: dict[str, Any]) -> None:
        if message["t"] == "failed":
            self.last(message)
        elif message["t"] == "started":
            self._begun = True
            self.way.expect(self, None if self._timeout_ms is None else self._timeout_ms / 1000 + END_MOST)
            terminal, self._terminal = self._terminal, None
            self.tell(message, [] if terminal is None else [terminal.detach()])
        else:
            raise GuestError("the guest said {kind!r} of a command that has not started", kind=message["t"])

    def overdue(self) -> None:
        if not self._begun or self.answered:
            super().overdue()
        elif self._drained():
            raise GuestError("the guest does not answer")
        else:
            self.way.expect(self, END_MOST)  # our own side does not read, and the end comes after the output

    def _feed(self, data: bytes) -> None:
        if self._line is not None:
            self._line_ready()  # first what was sent before this was written, such as a terminal's new size
            if self._line is None:
                return  # nobody wants the input any more
        super()._feed(data)

    def _more(self, message: dict[str, Any]) -> None:
        if message["t"] == "stopped":
            self.tell({"t": "stopped"})
        elif message["t"] == "exit":
            self.last(None)
            self._end_input()
            self._exit = message
        else:
            super()._more(message)

    def settle(self) -> None:
        # `exit` comes after the last output: whoever has received it reads what is there, and does not wait for more.
        if self._exit is not None and self._drained():
            message, self._exit = self._exit, None
            for sink in self._sinks.values():
                sink.close()
            self.tell(message)
        super().settle()

    def finished(self) -> bool:
        return self._exit is None and super().finished()

    def close(self) -> None:
        if self._terminal is not None:
            self._terminal.close()
        super().close()


class DialJob(StreamJob):
    """A connection to a tenant's port, as one end of a local pair of sockets."""

    def _first(self, message: dict[str, Any]) -> None:
        if message["t"] == "failed":
            self.last(message)
            return
        if message["t"] != "done":
            raise GuestError("the guest answered {kind!r}", kind=message["t"])
        self._begun = True
        self.way.expect(self, None)
        ours, theirs = socket.socketpair()
        with ours:
            self._open(SocketEnd(ours), [SocketEnd(ours)], tell_end=True)
        self.tell(message, [theirs.detach()])

    def _unread(self, number: int) -> None:
        self.ask({"t": "cancel"})  # our side has closed, and the tenant should see that
        self.settle()

    def _more(self, message: dict[str, Any]) -> None:
        if message["t"] != "ended":
            super()._more(message)
        self.last(None)
        self._end_input()

    def settle(self) -> None:
        if self._begun and self._line is not None and not self._line.queued:
            self.drop_line()  # the connection has been handed over and no longer needs it
        super().settle()

    def abandoned(self) -> None:
        if self._begun:
            self.drop_line()
        else:
            super().abandoned()


class AcceptedJob(DialJob):
    """A connection that a tenant made. Nobody asked for it, so it has no line."""

    def __init__(self, way: BridgeAccess, number: int) -> None:
        super().__init__(way, number, None)
        self._begun = True
        ours, self.theirs = socket.socketpair()
        with ours:
            self._open(SocketEnd(ours), [SocketEnd(ours)], tell_end=True)


class RefusedJob(Job):
    """A connection that a tenant made and that there is no room for. It only awaits the guest's last frame about it."""

    def heard(self, message: dict[str, Any]) -> None:
        if message["t"] == "ended":
            self.last(None)
        elif message["t"] not in ("out", "credit", "closed"):  # sent before the guest has read the refusal
            raise GuestError("the guest said {kind!r} about a stream", kind=message["t"])
