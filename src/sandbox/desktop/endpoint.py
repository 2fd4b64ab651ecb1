"""Where Playwright and chromedriver connect: HTTP and WebSocket on this machine's loopback, in front of the pipe.

A page in any browser, and any user of this machine, can try this port. So a request must have the secret in its path,
or come from a socket of the same user, according to the kernel's table. It must have no Origin header, which pages
cannot leave out where it matters. And its Host must be this machine, against DNS rebinding.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import struct
from threading import Lock
from typing import TYPE_CHECKING, Any

import h11
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, Request, TextMessage
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from sandbox.desktop.loopback import Loopback, hang_up, peer_user
from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.desktop.browser import Browser
    from sandbox.desktop.loopback import Peer

_NAMES = ("127.0.0.1", "localhost")
_MOST_HEAD = 2**14
_MOST_MESSAGE = 128 * 2**20
_PATIENCE = 30.0


class Endpoint:
    """Listens until it is closed."""

    def __init__(self, browser: Browser, port: int = 0) -> None:
        """Raises SandboxError when the port is taken."""
        self._browser = browser
        self._secret = secrets.token_urlsafe(24)
        self._listening = Loopback(port, self._serve)
        self.port = self._listening.port

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    def http(self, path: str) -> str:
        """A URL with the secret in it."""
        return f"http://{self.address}/{self._secret}{path}"

    def ws(self, path: str) -> str:
        """A WebSocket URL with the secret in it."""
        return f"ws://{self.address}/{self._secret}{path}"

    def close(self) -> None:
        """Stops listening, and ends every connection. Idempotent."""
        self._listening.close()

    def _serve(self, line: socket.socket, peer: Peer) -> None:
        line.settimeout(_PATIENCE)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A client that does not read can block the browser's other clients for this long.
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(_PATIENCE), 0))
        try:
            self._answer(line, peer)
        except (h11.ProtocolError, RemoteProtocolError, LocalProtocolError):
            pass

    def _answer(self, line: socket.socket, peer: Peer) -> None:
        head = bytearray()
        while b"\r\n\r\n" not in head:
            data = line.recv(4096)
            if not data or len(head) > _MOST_HEAD:
                return
            head += data
        wire = h11.Connection(h11.SERVER)
        wire.receive_data(bytes(head))
        asked = wire.next_event()
        if not isinstance(asked, h11.Request):
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in asked.headers}
        path = self._admitted(asked.target.decode("latin-1"), headers, peer)
        if path is None:
            self._send(line, 403, {"error": "not for you"})
        elif headers.get(b"upgrade", "").lower() == "websocket":
            self._carry(line, bytes(head), path)
        else:
            self._tell(line, asked.method, path)

    def _admitted(self, target: str, headers: dict[bytes, str], peer: Peer) -> str | None:
        """The path below the secret; None if the request is refused."""
        if b"origin" in headers or headers.get(b"host", "").removesuffix(f":{self.port}") not in _NAMES:
            return None
        first, _, rest = target.removeprefix("/").partition("/")
        if secrets.compare_digest(first.encode(), self._secret.encode()):
            return f"/{rest}"
        return target if peer_user(peer, self.port) == os.geteuid() else None

    # -- HTTP

    def _tell(self, line: socket.socket, method: bytes, target: str) -> None:
        path, _, query = target.partition("?")
        path = path.rstrip("/")
        browser = self._browser
        try:
            if path == "/json/version":
                answer: Any = {
                    **browser.version(),
                    "webSocketDebuggerUrl": self._own(f"/devtools/browser/{browser.id}"),
                }
            elif path in ("/json", "/json/list"):
                answer = [self._page(one) for one in browser.pages()]
            elif path == "/json/new" and method == b"PUT":
                new = browser.open(query or "about:blank")
                answer = next((self._page(one) for one in browser.pages() if one["id"] == new), {"id": new})
            else:
                self._send(line, 404, {"error": "no such path"})
                return
        except SandboxError as problem:
            self._send(line, 502, {"error": str(problem)})
            return
        self._send(line, 200, answer)

    def _page(self, page: dict[str, str]) -> dict[str, str]:
        return {**page, "webSocketDebuggerUrl": self._own(f"/devtools/page/{page['id']}")}

    def _own(self, path: str) -> str:
        return self.ws(path)

    @staticmethod
    def _send(line: socket.socket, status: int, answer: Any) -> None:
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 {status} .\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        line.sendall(head.encode() + b"X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n" + body)

    # -- WebSocket

    def _carry(self, line: socket.socket, head: bytes, path: str) -> None:
        target = path.removeprefix("/devtools/page/") if path.startswith("/devtools/page/") else None
        if target is None and path != f"/devtools/browser/{self._browser.id}":
            self._send(line, 404, {"error": "no such target"})
            return
        conversation = _Conversation(line)
        if not conversation.is_asked_for(head):
            return
        client = self._browser.attach(conversation.tell, conversation.end, target)
        try:
            for text in conversation.messages():
                client.send(text)
        finally:
            client.close()


class _Conversation:
    """One client's WebSocket. `tell` and `end` are called in the browser's thread."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._wire = WSConnection(ConnectionType.SERVER)
        self._sending = Lock()

    def is_asked_for(self, head: bytes) -> bool:
        """Whether the request asks for a WebSocket."""
        self._wire.receive_data(head)
        return any(isinstance(one, Request) for one in self._wire.events())

    def tell(self, text: str) -> None:
        """Sends a message; ends the conversation when that cannot be done."""
        try:
            self._send(TextMessage(text))
        except (OSError, LocalProtocolError):
            self.end()

    def end(self) -> None:
        """Ends it. Idempotent."""
        hang_up(self._line)

    def messages(self) -> Iterator[str]:
        """Accepts the WebSocket, and yields the client's messages until it closes or sends one that is too large."""
        self._send(AcceptConnection())
        self._line.settimeout(None)
        parts: list[str] = []
        while data := self._line.recv(2**16):
            with self._sending:
                self._wire.receive_data(data)
                events = list(self._wire.events())
            for event in events:
                if isinstance(event, TextMessage):
                    parts.append(event.data)
                    if sum(map(len, parts)) > _MOST_MESSAGE:
                        return
                    if event.message_finished:
                        yield "".join(parts)
                        parts = []
                elif isinstance(event, Ping):
                    self._send(event.response())
                elif isinstance(event, CloseConnection):
                    self._send(event.response())
                    return

    def _send(self, event: Any) -> None:
        with self._sending:
            self._line.sendall(self._wire.send(event))
