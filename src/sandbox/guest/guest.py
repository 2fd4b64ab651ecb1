"""The host's side of the conversation with one guest."""

from __future__ import annotations

import errno
import os
from _thread import allocate_lock as Lock  # `threading` is loaded later: see `wiring.py`

from sandbox import sockets as socket
from sandbox.errors import GuestError, Message, SandboxClosed, WallError
from sandbox.guest import frames
from sandbox.guest.command_channel import ERRNO, integer
from sandbox.wiring import Wiring

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Iterator, Sequence
    from socket import socket as StandardSocket
    from typing import Any

    from sandbox.guest.process import Process

VERSION = 2


class Guest:
    """One guest. Safe to use from many threads: each request is one frame and has a line of its own."""

    passes_descriptors = True  # descriptors can be passed in both directions

    def __init__(self, channel: _socket.socket) -> None:
        self._channel = channel
        self._lock = Lock()
        self._next = 0
        self.have: dict[str, Any] = {}
        self.sockets: dict[str, socket.socket] = {}
        self.null = -1  # the sandbox's /dev/null
        self.devices: dict[str, int] = {}  # mounted FUSE devices; whoever serves a device takes it out and owns it

    def greet(self) -> None:
        """Receives the guest's first message. Raises SandboxClosed when it never comes, GuestError when it is not a
        hello."""
        message, fds = frames.receive(self._channel)
        frames.close_all(fds)
        if message["t"] != "hello" or message.get("v") != VERSION:
            raise GuestError(
                "the guest speaks version {message!r}, not {version}: build or install it again",
                message=message.get("v"),
                version=VERSION,
            )

    def set_up(self, setup: dict[str, object], fds: Sequence[int] = ()) -> None:
        """Makes the guest build the sandbox and drop its privileges. Raises WallError when a wall cannot be built."""
        self.send_setup(setup, fds)
        self.wait_ready()

    def send_setup(self, setup: dict[str, object], fds: Sequence[int] = ()) -> None:
        """The first half of `set_up`. The guest need not have started yet: it reads this once it has."""
        self._say({"t": "setup", **setup}, fds)

    def wait_ready(self) -> None:
        """The second half of `set_up`, after `greet`."""
        Wiring.load_soon()
        self._get_ready()

    def _get_ready(self) -> None:
        message, received = frames.receive(self._channel)
        if message["t"] == "failed":
            frames.close_all(received)
            raise WallError(_failed(message))
        names, have = message.get("sockets", []), message.get("have", {})
        if message["t"] != "ready" or not _names(names, len(received)) or not isinstance(have, dict):
            frames.close_all(received)
            raise GuestError("the guest did not get ready")
        for name, fd in zip(names, received, strict=True):
            if name == "null":
                self.null = fd
            elif name.startswith("fuse:"):
                self.devices[name] = fd
            else:
                self.sockets[name] = socket.socket(fileno=fd)
        self.have = have

    def start(self, request: dict[str, object], name: str, stdio: Sequence[int] = ()) -> Process:
        """Starts a command; `stdio` are the tenant's ends (none with a pty), which the caller still has to close."""
        from sandbox.guest.process import Process

        line, theirs = socket.socketpair()
        try:
            self._say({"t": "exec", "id": self._number(), **request}, (theirs.fileno(), *stdio))
        except BaseException:
            line.close()
            raise
        finally:
            theirs.close()
        return Process(line, name, "pty" in request)

    def file(self, operation: str, path: bytes, **more: object) -> tuple[dict[str, Any], list[int]]:
        """One file operation with a tenant's own rights. Raises OSError as the same call outside would.

        Where descriptors do not cross, `open` raises it with EXDEV: use `read` and `write` instead.
        """
        from sandbox.guest.answers import check

        request = {"t": "file", "op": operation, "path": path, **more}
        try:
            answer, fds = self._ask(request, os.fsdecode(path))
        except OSError as problem:
            if problem.errno == errno.EINVAL and operation in ("read", "write"):
                raise OSError(errno.EINVAL, "not a regular file", os.fsdecode(path)) from None
            raise
        try:
            check(operation, answer, fds, more.get("size"), more.get("below"))
        except GuestError:
            frames.close_all(fds)
            raise
        return answer, fds

    def take_sockets(self) -> dict[str, socket.socket]:
        """The sandbox's listening sockets, by name. The caller owns them from now on."""
        taken, self.sockets = self.sockets, {}
        return taken

    def dial(self, address: str, port: int) -> StandardSocket:
        """A connection to a tenant's listening socket; an `address` with a slash is a Unix socket's path.

        Raises OSError when nobody listens.
        """
        family = 1 if address.startswith("/") else 6 if ":" in address else 4
        request: dict[str, object] = {"t": "dial", "family": family, "address": address, "port": port}
        message, fds = self._ask(request, f"{address}:{port}")
        if len(fds) != 1:
            frames.close_all(fds)
            raise GuestError("the guest answered {message!r}", message=message["t"])
        return socket.standard(socket.socket(fileno=fds[0]))

    def pause(self) -> None:
        """Stops every process inside. Raises OSError when one does not stop."""
        self._ask({"t": "pause"}, "pause")

    def resume(self) -> None:
        """Continues the processes, except those that were stopped before. Raises OSError."""
        self._ask({"t": "resume"}, "resume")

    def report_socket(self) -> _socket.socket:
        """Readable when the guest has sent something unasked, or ended. Only poll it."""
        return self._channel

    def reports(self, patience: float | None = None) -> Iterator[dict[str, Any]]:
        """Yields what the guest sends unasked, until its stream ends. For a single reader. Raises GuestError.

        With `patience`, it also ends after that many seconds of silence; nothing more can be sent to the guest then.
        """
        if patience is not None:
            self._channel.settimeout(patience)
        while True:
            try:
                message, fds = frames.receive(self._channel)
            except (SandboxClosed, TimeoutError):
                return
            frames.close_all(fds)
            yield message

    def finish(self) -> None:
        """Ends the sandbox, as `close` does, but what the guest sent before its end can still be read."""
        try:
            self._channel.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has ended already

    def alive(self) -> bool:
        """Whether the guest's end is still open, as far as we can tell without waiting."""
        import select

        try:
            poll = select.poll()
            poll.register(self._channel.fileno(), 0)
            return not poll.poll(0)
        except (OSError, ValueError):  # our own end is closed
            return False

    def close(self) -> None:
        """Ends the connection, and with it the sandbox: the guest kills everything when its stream ends."""
        for one in self.sockets.values():
            one.close()
        frames.close_all([*self.devices.values(), *([self.null] if self.null >= 0 else [])])
        self.devices.clear()
        self.null = -1
        self._channel.close()

    def _ask(self, request: dict[str, object], subject: str) -> tuple[dict[str, Any], list[int]]:
        line, theirs = socket.socketpair()
        with line:
            with theirs:
                self._say({"id": self._number(), **request}, (theirs.fileno(),))
            message, fds = frames.receive(line)
            if fds:
                # Wait until the opener in the guest is gone: while it holds a copy, a program just written is busy.
                line.recv(1)
        if message["t"] == "done":
            return message, fds
        frames.close_all(fds)
        if message["t"] != "failed":
            raise GuestError("the guest answered {message!r}", message=message["t"])
        number = integer(message, "errno", ERRNO)
        raise OSError(number, os.strerror(number), subject)

    def _say(self, message: dict[str, object], fds: Sequence[int]) -> None:
        with self._lock:
            try:
                frames.send(self._channel, message, fds)
            except ValueError as closed:  # our own end was closed by another thread
                raise SandboxClosed("the sandbox is closed") from closed

    def _number(self) -> int:
        with self._lock:
            self._next += 1
            return self._next


def _names(said: object, count: int) -> bool:
    """Whether the guest named each of its `count` descriptors, and none twice."""
    return (
        isinstance(said, list)
        and len(said) == count
        and all(isinstance(name, str) for name in said)
        and len(set(said)) == count
    )


def _failed(message: dict[str, Any]) -> str:
    number, step = integer(message, "errno", ERRNO), message.get("step")
    detail = message.get("detail")
    where = f" ({detail.decode(errors='replace') if isinstance(detail, bytes) else detail})" if detail else ""
    if number == errno.ENOSYS:
        return Message(
            "this kernel lacks a system call ({step}{where}); Linux 5.12 or later has it", step=step, where=where
        )
    return Message(
        "cannot build the sandbox: {step}: {reason}{where}; run `sandbox doctor`",
        step=step,
        reason=os.strerror(number),
        where=where,
    )
