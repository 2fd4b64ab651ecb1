"""The agent's end of its clients' connections: a thread for each, which speaks JSON-RPC in TLS.

Each begins with one line, `{"token": …, "sandbox": ID or ""}`, and is answered with one: `{}`, or why not. Then it is
what `/v1/rpc` and `/v1/sandboxes/ID/rpc` of the HTTP API are, with the same rules.
"""

from __future__ import annotations

import hmac
import socket
from contextlib import suppress
from threading import BoundedSemaphore, Event, Lock, Thread
from typing import TYPE_CHECKING, Any

import msgspec

from sandbox.client import Client
from sandbox.cluster.agent_stream import AgentStream
from sandbox.errors import SandboxError
from sandbox.rpc.current_sandbox import CurrentSandbox
from sandbox.server.errors import told
from sandbox.server.routes.rpc import creator, run_session
from sandbox.server.scopes import LEASE

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from sandbox.server.scopes import Access
    from sandbox.server.server import Server

HANDSHAKES = 256  # at a time; who comes then is not served
PATIENCE = 10.0  # seconds to finish a handshake


class _First(msgspec.Struct, forbid_unknown_fields=True):
    token: str
    sandbox: str = ""


class _Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message


class DirectLines:
    """One agent's. `listening` is a socket that listens."""

    def __init__(
        self,
        server: Server,
        context: ssl.SSLContext,
        listening: socket.socket,
        over: Callable[[str], object] = lambda lease: None,
    ) -> None:
        """`over` is called when a connection has ended that could make the sandbox of that lease."""
        self._server, self._context, self._listening, self._over = server, context, listening, over
        self._free = BoundedSemaphore(HANDSHAKES)
        self._streams: dict[AgentStream, tuple[str, str]] = {}  # with which lease, and for which sandbox
        self._lock = Lock()
        self._ended = Event()
        Thread(target=self._accept, name="sandbox-lines", daemon=True).start()

    def close(self) -> None:
        """Ends all of them, and takes no more."""
        self._ended.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        with self._lock:
            streams = list(self._streams)
        for one in streams:
            one.cut()

    def cut(self, lease: str) -> None:
        """Ends those of a lease that has ended, since each takes threads; not those to forks, which live on."""
        with self._lock:
            found = [(one, sandbox) for one, (with_lease, sandbox) in self._streams.items() if with_lease == lease]
        for one, sandbox in found:
            if not sandbox or self._server.reach.known(sandbox) is None:
                one.cut()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listening.accept()
            except OSError:  # the end, or no descriptors are left at the moment
                if self._ended.wait(0.05):
                    return
                continue
            if not self._free.acquire(blocking=False):
                line.close()
                continue
            try:
                Thread(target=self._serve, args=(line,), name="sandbox-line", daemon=True).start()
            except RuntimeError:  # no thread can be started
                self._free.release()
                line.close()

    def _serve(self, line: socket.socket) -> None:
        try:
            stream = self._begun(line)
        except BaseException:
            self._free.release()
            raise
        if stream is None:
            self._free.release()
            return
        with self._lock:
            self._streams[stream] = "", ""
        try:
            try:
                first, access = self._known(stream)
                current, ends, walled = self._admitted(first, access)
            finally:
                self._free.release()
            with self._lock:
                self._streams[stream] = access.token, first.sandbox
            stream.send(memoryview(_line({})))
            try:
                run_session(self._server, access, current, stream, ends=ends, walled=walled)
            finally:
                if ends:
                    self._over(access.token)
        except _Refused as refused:
            with suppress(OSError):
                stream.send(memoryview(_line({"error": refused.message, "status": refused.status})))
        except (OSError, msgspec.DecodeError):
            pass  # it has ended, or does not speak our language
        finally:
            self._end(stream)

    def _begun(self, line: socket.socket) -> AgentStream | None:
        """The connection after its handshake; None for somebody without a certificate."""
        line.settimeout(PATIENCE)
        try:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return AgentStream(self._context.wrap_socket(line, server_side=True))
        except (OSError, ValueError):
            line.close()
            return None

    def _known(self, stream: AgentStream) -> tuple[_First, Access]:
        """What the first line says, and who says it. Raises _Refused, OSError, DecodeError."""
        first = msgspec.json.decode(stream.first_line(), type=_First)
        access = self._server.tokens.check(first.token)
        if access is None or access.surface != LEASE or not hmac.compare_digest(access.holder, stream.peer()):
            raise _Refused(401, "that token is not valid")
        return first, access

    def _admitted(self, first: _First, access: Access) -> tuple[CurrentSandbox, bool, bool]:
        """What the session is about; whether the sandbox ends with it, and has walls. Raises _Refused."""
        if not first.sandbox:
            return creator(self._server, access), True, True
        try:
            reached = self._server.reach.get(first.sandbox, access)
        except SandboxError as problem:
            status, body = told(problem)
            raise _Refused(status, body.message) from None
        if isinstance(reached.sandbox, Client):
            raise _Refused(403, "another process owns that sandbox")
        return CurrentSandbox(reached.sandbox), False, reached.walled

    def _end(self, stream: AgentStream) -> None:
        with self._lock:
            self._streams.pop(stream, None)
        stream.cut()
        stream.close()


def _line(said: dict[str, Any]) -> bytes:
    return msgspec.json.encode(said) + b"\n"
