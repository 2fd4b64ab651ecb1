"""A web server on the loopback that does as it is told, also what no server should do."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

Answer = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """One request. Answers are functions of it."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        with self.server.lock:
            self.server.seen.append((self.path, self.headers.get("Range"), self.headers.get("Authorization")))
        answer = self.server.answers.get(self.path.partition("?")[0])
        if answer is None:
            return self.say(404)
        try:
            answer(self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def say(self, status: int, body: bytes = b"", **headers: str) -> None:
        """A whole answer."""
        self.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.answers: dict[str, Answer] = {}
        self.seen: list[tuple[str, str | None, str | None]] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def file(self, path: str, content: bytes) -> None:
        """A file, as a good server has it: with ranges."""

        def answer(request: Request) -> None:
            asked = request.headers.get("Range")
            if asked is None:
                return request.say(200, content)
            start = int(asked.removeprefix("bytes=").partition("-")[0])
            request.say(206, content[start:], Content_Range=f"bytes {start}-{len(content) - 1}/{len(content)}")

        self.answers[path] = answer


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
