"""A secret of a sandbox reaches its host from a fork, too."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sandbox import Sandbox
from tests.network.lab import VALUE, Pki

pytestmark = pytest.mark.walls

HOST = "api.example.com"


class Upstream(ThreadingHTTPServer):
    """A proxy on the loopback that is itself every host that it is asked for."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _Asked)
        self.context = context
        self.seen: list[str] = []


class _Asked(BaseHTTPRequestHandler):
    server: Upstream

    def do_CONNECT(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with self.server.context.wrap_socket(self.connection, server_side=True) as line:
            asked = line.recv(65536).decode()
            self.server.seen += [one for one in asked.split("\r\n") if one.lower().startswith("authorization:")]
            line.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[tuple[Upstream, str]]:
    pki = Pki(tmp_path)
    server = Upstream(pki.server_context([HOST], ["http/1.1"]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server, pki.file
    server.shutdown()
    server.server_close()


def test_a_fork_sends_the_secret_to_its_host(
    tmp_path: Path, upstream: tuple[Upstream, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    server, authority = upstream
    config = {
        "filesystem": {"root": str(tmp_path / "project")},
        "environment": {"set": {"KEY": "${KEY}"}},
        "network": {
            "allowed_hosts": [HOST],
            "upstream_proxy": f"http://127.0.0.1:{server.server_address[1]}",
            "ca_certificates": [authority],
            "secrets": {"KEY": {"value": VALUE, "hosts": [HOST]}},
        },
    }
    with Sandbox(config) as sandbox, sandbox.fork()[0] as fork:
        asked = fork.exec(f'curl -sS -H "Authorization: Bearer $KEY" https://{HOST}/', check=True)
        assert (asked.stdout, asked.stderr) == ("", "")
        assert VALUE not in fork.exec("env").stdout
    assert [one.partition(" ")[2] for one in server.seen] == [f"Bearer {VALUE}"]


class _Echo(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"it was {VALUE}; you sent {self.headers.get('X-Word', 'nothing')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_fork_knows_every_secret_that_its_origin_ever_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = {
        "filesystem": {"root": str(tmp_path / "project")},
        "network": {
            "allowed_hosts": ["other.example.com", "127.0.0.0/8"],
            "secrets": {"KEY": {"value": VALUE, "hosts": [HOST], "placeholder": "a-word-of-the-past"}},
        },
    }
    url = f"http://other.example.com:{server.server_address[1]}/"
    with Sandbox(config, resolve=lambda host, port: ["127.0.0.1"]) as sandbox:
        sandbox.update_network({"secrets": {"KEY": None}})
        with sandbox.fork()[0] as fork:
            plain = fork.exec(["curl", "-sS", url], check=True).stdout
            worded = fork.exec(["curl", "-sS", "-H", "X-Word: a-word-of-the-past", url]).stdout
    server.shutdown()
    server.server_close()
    assert VALUE not in plain
    assert "it was a-word-of-the-past" in plain
    assert "the secret KEY has been revoked" in worded
