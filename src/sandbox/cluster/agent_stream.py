"""A TLS connection that one thread reads while others write, and the client's way to make one to an agent.

Lines of JSON-RPC travel in it as they are. With WebSockets, the way to the agent took about twice the processor time:
all of them pass through its one event loop, and each message through several layers of it.
"""

from __future__ import annotations

import hashlib
import select
import socket
import ssl
import time
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from sandbox.errors import Denied, NotFound, SandboxError
from sandbox.rpc.connection import Connection
from sandbox.websocket import SILENCE, notice_silence

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

_PIECE = 2**16
_FIRST = 2**14  # bytes of the first line of either side
_TIMEOUT = 30.0  # seconds to connect


class AgentStream:
    """One connection. One thread receives; one at a time may send.

    OpenSSL does not allow two threads in one connection. So nobody waits inside it: every call is under a lock and
    returns at once, and the waiting is done outside.
    """

    def __init__(self, line: ssl.SSLSocket) -> None:
        """`line` has finished its handshake, and belongs to this object now."""
        line.setblocking(False)
        self._line = line
        self._lock = Lock()
        self._rest = b""  # what came with the first line

    def fileno(self) -> int:
        return self._line.fileno()

    def peer(self) -> str:
        """The digest of the other side's certificate; "" without one."""
        certificate = self._line.getpeercert(binary_form=True)
        return hashlib.sha256(certificate).hexdigest() if certificate else ""

    def receive(self, wake: int | None = None, until: float | None = None) -> bytes:
        """The next bytes; b"" when the connection has ended, `wake` is readable, or the time `until` has come."""
        if self._rest:
            rest, self._rest = self._rest, b""
            return rest
        while True:
            wanted = select.POLLIN
            try:
                with self._lock:
                    return self._line.recv(_PIECE)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLWantWriteError:
                wanted = select.POLLOUT
            except (OSError, ValueError):
                return b""
            if not self._wait(wanted, wake, until):
                return b""

    def send(self, data: memoryview) -> int:
        """Sends a piece, and returns how much that was. Raises OSError."""
        piece = data[:_PIECE]
        while True:
            wanted = select.POLLOUT
            try:
                with self._lock:
                    return self._line.send(piece)
            except ssl.SSLWantWriteError:
                pass
            except ssl.SSLWantReadError:
                wanted = select.POLLIN
            except ValueError as problem:
                raise BrokenPipeError from problem
            self._wait(wanted)

    def first_line(self) -> bytes:
        """The first line. Raises ConnectionError when it does not come in time, or is too long."""
        found, until = b"", time.monotonic() + _TIMEOUT
        while b"\n" not in found:
            piece = self.receive(until=until)
            if not piece or len(found) > _FIRST:
                raise ConnectionError("it closed the connection")
            found += piece
        line, _, self._rest = found.partition(b"\n")
        return line

    def cut(self) -> None:
        """Wakes threads that send or receive. Idempotent."""
        with suppress(OSError):
            socket.socket.shutdown(self._line, socket.SHUT_RDWR)  # SSLSocket's own would go on without TLS

    def shutdown(self, how: int, /) -> None:
        self.cut()

    def close(self) -> None:
        """Closes the socket. Call it when no thread uses it any more."""
        with self._lock:
            self._line.close()

    def _wait(self, wanted: int, wake: int | None = None, until: float | None = None) -> bool:
        """Waits until the connection is ready. Returns False when `wake` is, or nothing was until then."""
        poll = select.poll()
        poll.register(self._line, wanted)
        if wake is not None:
            poll.register(wake, select.POLLIN)
        ready = poll.poll(None if until is None else max(0.0, until - time.monotonic()) * 1000)
        return bool(ready) and all(one != wake for one, _ in ready)


def connect(
    address: tuple[str, int],
    context: ssl.SSLContext,
    token: str,
    sandbox: str = "",
    resumed: MutableMapping[ssl.SSLContext, ssl.SSLSession] | None = None,
) -> Connection:
    """A connection to an agent for a new sandbox, or for a running one.

    `resumed` has the last session of each context, which saves both sides half of a handshake: the certificates were
    checked at the first one, and the session is worth as much as the key of ours, which is in this process, too. Raises
    Denied, NotFound, and SandboxError when the agent cannot be reached.
    """
    try:
        line = socket.create_connection(address, _TIMEOUT)
        try:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            notice_silence(line, SILENCE)
            session = None if resumed is None else resumed.get(context)
            wrapped = context.wrap_socket(line, server_hostname=address[0], session=session)
            stream = AgentStream(wrapped)
        except BaseException:
            line.close()
            raise
        try:
            stream.send(memoryview(msgspec.json.encode({"token": token, "sandbox": sandbox}) + b"\n"))
            told = msgspec.json.decode(stream.first_line(), type=dict[str, Any])
            if "error" in told:
                raise _refused(told)
            if resumed is not None and wrapped.session is not None:
                resumed[context] = wrapped.session  # by now it has come, after the handshake
        except BaseException:
            stream.close()
            raise
    except (OSError, msgspec.DecodeError) as problem:
        url = f"{address[0]}:{address[1]}"
        raise SandboxError("cannot reach {url}: {problem}", url=url, problem=problem) from problem
    return Connection(stream.receive, stream.send, stream.cut, stream)


def _refused(told: Mapping[str, Any]) -> SandboxError:
    message = str(told["error"])
    if told.get("status") in (401, 403):
        return Denied("server", message)
    if told.get("status") == 404:
        return NotFound(message)
    return SandboxError("the server refused: {message}", message=message)
