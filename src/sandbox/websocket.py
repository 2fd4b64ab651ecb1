"""A WebSocket to a server, for threads that may block: wsproto over a socket."""

from __future__ import annotations

import json
import socket
import ssl
import sys
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from sandbox.errors import Denied, InvalidArgument, NotFound, SandboxClosed, SandboxError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PIECE = 2**16
_LARGEST_REFUSAL = 2**16
PATIENCE = 1.0  # seconds that `close` waits for threads that send
SILENCE = 4  # seconds after which a machine of a cluster that does not answer counts as gone


class WebSocketClient:
    """One connection. One thread receives; any may send."""

    def __init__(
        self, url: str, headers: Mapping[str, str], *, certificates: str | None = None, timeout: float = 30.0,
        protocols: Sequence[str] = (), context: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        """`url` is http(s)://…; `protocols` are the subprotocols to offer. `context` is for mutual TLS; with it, a
        machine that is gone is noticed within seconds.

        Raises SandboxError, Denied or NotFound when the server refuses.
        """
        self._line, host, target = _connected(url, certificates, timeout, context)
        self._wire = WSConnection(ConnectionType.CLIENT)
        self._events: deque[object] = deque()
        self._sending = Lock()
        self._closed = False
        try:
            more = [(name.encode(), value.encode()) for name, value in headers.items()]
            self._send(Request(host=host, target=target, extra_headers=more, subprotocols=list(protocols)))
            self._await_acceptance()
            self._line.settimeout(None)
        except BaseException:
            self._line.close()
            raise

    def send(self, data: bytes) -> None:
        """Sends a binary frame. Raises SandboxClosed."""
        self._send(BytesMessage(data))

    def send_text(self, text: str) -> None:
        """Sends a text frame. Raises SandboxClosed."""
        self._send(TextMessage(text))

    def receive(self) -> bytes:
        """The next part of a message, as bytes; b"" when the server has ended the connection."""
        part = self.receive_message()
        return part.encode() if isinstance(part, str) else part

    def receive_message(self) -> bytes | str:
        """The next part of a message: text of a text message, else bytes; b"" at the end of the connection."""
        while True:
            event = self._next()
            match event:
                case None | CloseConnection():
                    return b""
                case BytesMessage() if event.data:
                    return bytes(event.data)
                case TextMessage() if event.data:
                    return event.data
                case Ping():
                    try:
                        self._send(event.response())
                    except SandboxClosed:
                        return b""

    def close(self) -> None:
        """Ends the connection; wakes threads that receive. Idempotent."""
        if self._sending.acquire(timeout=PATIENCE):  # else a thread is stuck sending to a server that does not read
            try:
                if not self._closed:
                    self._closed = True
                    self._line.settimeout(PATIENCE)
                    self._line.sendall(self._wire.send(CloseConnection(code=1000)))
            except (OSError, LocalProtocolError):
                pass
            finally:
                self._sending.release()
        self.cut()

    def cut(self) -> None:
        """Wakes threads that send or receive, without sending a close frame. Idempotent."""
        try:
            socket.socket.shutdown(self._line, socket.SHUT_RDWR)  # SSLSocket's own would go on without TLS
        except OSError:
            pass

    def free(self) -> None:
        """Closes the socket. Call it when no thread receives any more."""
        self._line.close()

    # -- the wire

    def _send(self, event: Request | BytesMessage | object) -> None:
        with self._sending:
            try:
                self._line.sendall(self._wire.send(event))  # type: ignore[arg-type]
            except (OSError, LocalProtocolError) as problem:
                raise SandboxClosed("the connection to the server has ended") from problem

    def _next(self) -> object | None:
        while not self._events:
            try:
                data = self._line.recv(_PIECE)
                with self._sending:
                    self._wire.receive_data(data or None)
                    self._events.extend(self._wire.events())
            except (OSError, RemoteProtocolError, LocalProtocolError):
                return None
            if not data and not self._events:
                return None
        return self._events.popleft()

    def _await_acceptance(self) -> None:
        status, body = 0, b""
        while True:
            event = self._next()
            match event:
                case AcceptConnection():
                    return
                case RejectConnection():
                    status = event.status_code
                    if not event.has_body:
                        raise _refused(status, b"")
                case RejectData():
                    body = (body + bytes(event.data))[:_LARGEST_REFUSAL]
                    if event.body_finished:
                        raise _refused(status, body)
                case None:
                    raise _refused(status, body)


def _connected(
    url: str, certificates: str | None, timeout: float, context: ssl.SSLContext | None
) -> tuple[socket.socket, str, str]:
    """The socket, the Host header and the path with its query. Raises SandboxError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArgument("the server's address is https://HOST[:PORT], not {url!r}", url=url)
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise InvalidArgument(
            "{url!r} is not encrypted: anybody on the way could read the token; http:// is only for this machine",
            url=url,
        )
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        line = socket.create_connection((parts.hostname, port), timeout)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            notice_silence(line, SILENCE)
        if parts.scheme == "https":
            trusted = context or ssl.create_default_context(cafile=certificates)
            line = trusted.wrap_socket(line, server_hostname=parts.hostname)
    except OSError as problem:
        raise SandboxError("cannot reach {url}: {problem}", url=url, problem=problem) from problem
    return line, parts.netloc.rpartition("@")[2], (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def notice_silence(line: socket.socket, seconds: int) -> None:
    """Makes the kernel end the connection, or those a listener accepts, after `seconds` of silence."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        probes = 2
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, probes)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, seconds // (probes + 2)))
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, seconds // 2))
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, seconds * 1000)


def _refused(status: int, body: bytes) -> SandboxError:
    try:
        message = str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        message = f"HTTP {status}" if status else "it closed the connection"
    kind = {404: NotFound, 409: SandboxClosed}.get(status)
    if status in (401, 403):
        return Denied("server", message)
    return kind(message) if kind is not None else SandboxError("the server refused: {message}", message=message)
