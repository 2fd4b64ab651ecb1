"""A walled place with its gate, and origins on the loopback that the policy's resolver hook gives names to."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sandbox.result import ExecResult
from sandbox.sandbox import Sandbox

Event = dict[str, Any]

PATIENCE = 300  # seconds for one command: machines are emulated, and this one may be busy
LOCAL = ["127.0.0.1"]  # as an entry of allowed_hosts: the explicit exception that lets names lead to the loopback


class Heard:
    """What a gate told: events and entries of the record. `wait` needs no sleep."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.records: list[dict[str, Any]] = []
        self._changed = threading.Condition()

    def emit(self, event: Event) -> None:
        if event["type"] != "network":
            return
        with self._changed:
            self.events.append(event["network"])
            self._changed.notify_all()

    def record(self, kind: str, summary: str, **more: Any) -> None:
        with self._changed:
            self.records.append({"type": kind, "summary": summary, **more})
            self._changed.notify_all()

    def wait(self, wanted: Callable[[Event], bool]) -> Event:
        """The first event that `wanted` accepts, past or to come."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(wanted(one) for one in self.events), 20), self.events
            return next(one for one in self.events if wanted(one))

    def blocked(self, text: str = "") -> Event:
        return self.wait(lambda one: bool(one["blocked"]) and text in one["url"])


class Walled:
    """A sandbox whose gate resolves names through a table: everything not in it does not exist."""

    def __init__(
        self,
        network: Mapping[str, object],
        names: Mapping[str, list[str]],
        filesystem: Mapping[str, object] | None = None,
        credentials: Mapping[str, object] | None = None,
        **more: Any,
    ) -> None:
        self.heard = Heard()
        self.names = dict(names)
        self.asked: list[str] = []
        config = {
            "network": dict(network),
            "filesystem": dict(filesystem or {}),
            "credentials": dict(credentials or {}),
        }
        self.sandbox = Sandbox(config, resolve=self._resolve, **more)
        self.watch = self.sandbox._gate_thread
        self.sandbox.on_event(self.heard.emit)
        write = self.watch.record

        def record(*words: Any, **details: Any) -> None:
            self.heard.record(*words, **details)
            write(*words, **details)

        self.watch.record = record

    def _resolve(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return self.names[host]

    def run(self, *command: str, **more: Any) -> ExecResult:
        return self.sandbox.exec(command[0] if len(command) == 1 else list(command), timeout=PATIENCE, **more)

    def python(self, code: str) -> ExecResult:
        return self.run("/usr/bin/python3", "-c", code)

    def close(self) -> None:
        self.sandbox.close()


Walls = Callable[..., Walled]


@pytest.fixture
def walled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Walls]:
    """Makes walled places: `walled(names={"a.test": ["127.0.0.1"]}, allowed_hosts=[…])`."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "sandbox-home"))
    made: list[Walled] = []

    def make(
        *, names: Mapping[str, list[str]] | None = None, more: dict[str, Any] | None = None, **network: object
    ) -> Walled:
        one = Walled(network, names or {}, **(more or {}))
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(f"{self.command} {self.path} for {self.headers['Host']}\n".encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(b"got " + str(len(body)).encode())

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Origin:
    """An HTTP server on 127.0.0.1, with TLS when given a context."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def origin() -> Iterator[Origin]:
    one = Origin()
    yield one
    one.close()


class Listener:
    """A bare TCP server on 127.0.0.1 whose `serve` gets each connection in a thread."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._socket.getsockname()[1]
        self._serve = serve
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(client,), daemon=True).start()

    def _one(self, client: socket.socket) -> None:
        with client:
            try:
                self._serve(client)
            except OSError:
                pass

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


Listen = Callable[[Callable[[socket.socket], None]], Listener]


@pytest.fixture
def listener() -> Iterator[Listen]:
    made: list[Listener] = []

    def make(serve: Callable[[socket.socket], None]) -> Listener:
        made.append(Listener(serve))
        return made[-1]

    yield make
    for one in made:
        one.close()


def echo(client: socket.socket) -> None:
    """Sends back what comes, and its end."""
    while data := client.recv(65536):
        client.sendall(data)
