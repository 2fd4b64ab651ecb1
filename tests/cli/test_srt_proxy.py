"""`srt proxy`: the gate alone. A decider (here: the test) decides every request over an inherited socket."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sandbox.network.tls.ca import Authority

# The original can be driven by the same tests: SRT_PROXY="node …/dist/cli.js proxy".
COMMAND = os.environ.get("SRT_PROXY", f"{sys.executable} -m sandbox.cli.srt proxy").split()
Answer = Callable[[dict[str, Any]], "dict[str, Any] | list[dict[str, Any]]"]


class Origin:
    """A server on the loopback that says what it was asked."""

    def __init__(self, authority: Authority | None = None) -> None:
        seen = self.seen = []  # type: list[dict[str, Any]]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size).decode()
                seen.append({"method": self.command, "path": self.path, "headers": self.headers.items(), "body": body})
                self.send_response(200)
                self.send_header("Set_Cookie", "a=b")
                self.send_header("Set-Cookie", "c=d")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if authority is not None:
            context = authority.context("127.0.0.1", "http/1.1")
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def headers(self, name: str) -> list[str]:
        return [value for one, value in self.seen[-1]["headers"] if one.lower() == name]


class Decider:
    """The other end of the proxy's descriptor."""

    def __init__(self, stream: socket.socket, answer: Answer) -> None:
        self.stream, self.answer = stream, answer
        self.heard: list[dict[str, Any]] = []

    def greet(self, allowed: list[str], denied: list[str]) -> None:
        self.heard.append(self.read())
        self.say({"t": "hello", "proto": 1, "allowedDomains": allowed, "deniedDomains": denied})
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.heard.append(self.read())
                said = self.answer(self.heard[-1])
                for one in said if isinstance(said, list) else [said]:
                    if one:
                        self.say({"t": "verdict", "id": self.heard[-1]["id"], **one})

    def read(self) -> dict[str, Any]:
        data = self._exactly(int.from_bytes(self._exactly(4), "big"))
        found: dict[str, Any] = json.loads(data)
        return found

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.stream.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def say(self, message: dict[str, Any] | bytes) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.stream.sendall(len(data).to_bytes(4, "big") + data)


class Running:
    """A proxy with its decider."""

    def __init__(self, answer: Answer, allowed: list[str], *, denied: list[str] | None = None, options: list[str],
                 pem: bytes | None = None, environment: dict[str, str] | None = None) -> None:  # fmt: skip
        self.listener = socket.create_server(("127.0.0.1", 0))
        ours, theirs = socket.socketpair()
        self.lifeline, lifeline = socket.socketpair()
        argv = [*COMMAND, "--listen-fd", str(self.listener.fileno()), "--decider-fd", str(theirs.fileno())]
        argv += ["--lifeline-fd", str(lifeline.fileno()), *options]
        passed = [self.listener.fileno(), theirs.fileno(), lifeline.fileno()]
        reading = -1
        if pem is not None:
            reading, writing = os.pipe()
            os.write(writing, pem)
            os.close(writing)
            argv += ["--ca-fd", str(reading)]
            passed.append(reading)
        env = {**os.environ, **(environment or {})}
        self.process = subprocess.Popen(argv, pass_fds=passed, stderr=subprocess.PIPE, text=True, env=env)
        theirs.close()
        lifeline.close()
        if reading >= 0:
            os.close(reading)
        self.decider = Decider(ours, answer)
        self.decider.greet(allowed, denied or [])
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listener.getsockname()
        return host, port

    def client(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self.address, timeout=20)

    def get(
        self, url: str, *, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> http.client.HTTPResponse:
        client = self.client()
        client.request(method, url, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = client.getresponse()
        answer.text = answer.read().decode()  # type: ignore[attr-defined]
        return answer

    def tls(self, port: int, authority: bytes, host: str = "127.0.0.1") -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cadata=authority.decode())
        client = http.client.HTTPSConnection(*self.address, timeout=20, context=context)
        client.set_tunnel(host, port)
        return client

    def ended(self) -> int:
        return self.process.wait(20)

    def close(self) -> None:
        self.lifeline.close()
        self.ended()
        assert self.process.stderr is not None
        self.rest = self.process.stderr.read()
        self.process.stderr.close()
        self.listener.close()
        self.decider.stream.close()


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    made = Origin()
    yield made
    made.server.shutdown()


@pytest.fixture
def proxy() -> Iterator[Callable[..., Running]]:
    made: list[Running] = []

    def start(answer: Answer, allowed: list[str], *options: str, **more: Any) -> Running:
        made.append(Running(answer, allowed, options=list(options), **more))
        return made[-1]

    yield start
    for one in made:
        one.close()


def allow(_: dict[str, Any]) -> dict[str, Any]:
    return {"action": "allow"}


def url(origin: Origin, path: str = "/a?b=c") -> str:
    return f"http://127.0.0.1:{origin.port}{path}"


def test_an_allowed_request_reaches_the_host_and_the_decider_was_asked(origin: Origin, proxy: Any) -> None:
    running = proxy(allow, ["127.0.0.1"])
    answer = running.get(url(origin), X_One="1")
    assert (answer.status, answer.text) == (200, "ok") and origin.seen[-1]["path"] == "/a?b=c"
    assert running.decider.heard[0] == {"t": "hello", "proto": 1}
    asked = running.decider.heard[1]
    headers = asked.pop("headers")
    assert asked == {
        "t": "req", "id": 1, "method": "GET", "host": "127.0.0.1", "port": origin.port,
        "hostHeader": f"127.0.0.1:{origin.port}", "path": "/a", "query": "b=c",
    }  # fmt: skip
    assert headers["x-one"] == ["1"]
    assert running.said == f"srt proxy: serving fd {running.listener.fileno()}\n"


def test_a_denial_has_the_deciders_status_and_reason(origin: Origin, proxy: Any) -> None:
    before = len(origin.seen)
    running = proxy(lambda _: {"action": "deny", "status": 451, "reason": "not for you"}, ["127.0.0.1"])
    answer = running.get(url(origin))
    assert (answer.status, answer.getheader("X-Deny-Reason"), answer.text) == (451, "decider", "not for you\n")
    assert len(origin.seen) == before


def test_a_host_that_is_not_listed_is_refused_without_asking(origin: Origin, proxy: Any) -> None:
    running = proxy(allow, ["example.com"])
    answer = running.get(url(origin))
    assert (answer.status, answer.getheader("X-Deny-Reason")) == (403, "host_not_allowed")
    assert len(running.decider.heard) == 1


def test_a_denied_host_is_refused_although_it_is_allowed_too(origin: Origin, proxy: Any) -> None:
    running = proxy(allow, ["127.0.0.1"], denied=[f"127.0.0.1:{origin.port}"])
    assert running.get(url(origin)).status == 403


def test_headers_are_removed_and_set_as_the_decider_says(origin: Origin, proxy: Any) -> None:
    said = {"action": "allow", "removeHeaders": ["x-secret"], "setHeaders": {"x-new": ["1", "2"], "x-old": ["9"]}}
    running = proxy(lambda _: said, ["127.0.0.1"], "--plaintext-header-set")
    assert running.get(url(origin), X_Secret="s", X_Old="0").status == 200
    assert origin.headers("x-secret") == [] and origin.headers("x-old") == ["9"]
    assert [one for value in origin.headers("x-new") for one in value.split(", ")] == ["1", "2"]


def test_without_the_option_no_header_is_set_unencrypted(origin: Origin, proxy: Any) -> None:
    running = proxy(lambda _: {"action": "allow", "setHeaders": {"x-new": ["1"]}}, ["127.0.0.1"])
    answer = running.get(url(origin))
    assert (answer.status, answer.getheader("X-Deny-Reason")) == (403, "plaintext_header_set")


def test_a_credential_takes_the_place_of_the_clients(origin: Origin, proxy: Any) -> None:
    said = {"action": "allow", "cred": "any", "credential": "real"}
    running = proxy(lambda _: said, ["127.0.0.1"], "--plaintext-header-set")
    running.get(url(origin), Authorization="Bearer mine", X_Api_Key="mine", Cookie="mine")
    assert origin.headers("authorization") == ["Bearer real"]
    assert origin.headers("x-api-key") == [] and origin.headers("cookie") == []


def test_the_decider_sees_a_body_that_it_asks_for(origin: Origin, proxy: Any) -> None:
    def answer(said: dict[str, Any]) -> dict[str, Any]:
        return {"action": "need_body", "max": 4} if said["t"] == "req" else {"action": "allow"}

    running = proxy(answer, ["127.0.0.1"])
    assert running.get(url(origin), method="POST", body=b"0123456789").status == 200
    shown = running.decider.heard[-1]
    assert (shown["t"], base64.b64decode(shown["data"]), shown["cut"]) == ("body", b"0123", True)
    assert origin.seen[-1]["body"] == "0123456789"


def test_a_body_can_be_refused_once_it_was_seen(origin: Origin, proxy: Any) -> None:
    before = len(origin.seen)

    def answer(said: dict[str, Any]) -> dict[str, Any]:
        return {"action": "need_body", "max": 99} if said["t"] == "req" else {"action": "deny", "status": 413}

    running = proxy(answer, ["127.0.0.1"])
    assert running.get(url(origin), method="POST", body=b"abc").status == 413
    assert "cut" not in running.decider.heard[-1] and len(origin.seen) == before


def test_one_connection_can_ask_for_several_hosts(origin: Origin, proxy: Any) -> None:
    running = proxy(allow, ["127.0.0.1", "127.0.0.2"])
    client = running.client()
    for host in ("127.0.0.1", "127.0.0.1"):
        client.request("GET", f"http://{host}:{origin.port}/")
        assert client.getresponse().read() == b"ok"
    client.request("GET", f"http://127.0.0.2:{origin.port}/")
    assert client.getresponse().status in (200, 502)  # nothing listens there; it is not refused as misdirected


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Origin, str]]:
    authority = Authority("origin")
    file = tmp_path_factory.mktemp("ca") / "ca.pem"
    file.write_bytes(authority.pem)
    made = Origin(authority)
    yield made, str(file)
    made.server.shutdown()


def rsa_authority(tmp_path: Path) -> tuple[bytes, bytes]:
    """Key and certificate as openssl makes them."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*argv, "-days", "2", "-subj", "/CN=mine"], check=True, capture_output=True)
    return key.read_bytes(), certificate.read_bytes()


def trusting(file: str) -> dict[str, str]:
    return {"SSL_CERT_FILE": file, "NODE_EXTRA_CA_CERTS": file}


def test_tls_ends_at_the_proxy_with_the_given_authority(secure: tuple[Origin, str], proxy: Any, tmp_path: Path) -> None:
    origin, file = secure
    key, certificate = rsa_authority(tmp_path)
    said = {"action": "allow", "cred": "any", "credential": "real"}
    pem, environment = key + certificate, trusting(file)
    options = "--strip-response-header", "set-cookie"
    running = proxy(lambda _: said, ["127.0.0.1"], *options, pem=pem, environment=environment)
    client = running.tls(origin.port, certificate)
    for _ in range(2):
        client.request("POST", "/x", b"body")
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (200, b"ok")
        assert answer.getheader("Set-Cookie") is None and answer.getheader("Set_Cookie") is None
    assert origin.headers("authorization") == ["Bearer real"]
    assert [one["id"] for one in running.decider.heard[1:]] == [1, 2]


def test_without_an_authority_no_tunnel_is_made(secure: tuple[Origin, str], proxy: Any) -> None:
    running = proxy(allow, ["127.0.0.1"])
    client = running.client()
    client.request("CONNECT", f"127.0.0.1:{secure[0].port}")
    answer = client.getresponse()
    assert (answer.status, answer.getheader("X-Deny-Reason")) == (403, "opaque_tunnel")


def test_a_request_for_another_host_than_the_tunnels_is_misdirected(
    secure: tuple[Origin, str], proxy: Any, tmp_path: Path
) -> None:
    key, certificate = rsa_authority(tmp_path)
    running = proxy(allow, ["127.0.0.1"], pem=key + certificate, environment=trusting(secure[1]))
    client = running.tls(secure[0].port, certificate)
    client.request("GET", "/", headers={"Host": "other.example"})
    answer = client.getresponse()
    assert (answer.status, answer.getheader("X-Deny-Reason")) == (421, "misdirected")
    assert len(running.decider.heard) == 1


@pytest.mark.parametrize(
    "broken",
    [
        b"not json",
        b'{"t":"verdict","id":1,"action":"allow","extra":1}',
        b'{"t":"verdict","id":1,"action":"allow","action":"allow"}',
        b'{"t":"verdict","id":7,"action":"allow"}',
        b'{"t":"verdict","id":1,"action":"allow","setHeaders":{}}',
        b'{"t":"verdict","id":1,"action":"allow","setHeaders":{"host":["x"]}}',
        b'{"t":"verdict","id":1,"action":"allow","cred":null}',
        b'{"t":"verdict","id":1,"action":"deny","status":200}',
        b'{"t":"verdict","id":true,"action":"allow"}',
        b"[]",
    ],
)
def test_a_decider_that_breaks_the_protocol_ends_the_proxy_and_allows_nothing(
    origin: Origin, proxy: Any, broken: bytes
) -> None:
    before = len(origin.seen)
    running: Running

    def answer(_: dict[str, Any]) -> list[dict[str, Any]]:
        running.decider.say(broken)
        return []

    running = proxy(answer, ["127.0.0.1"])
    refused = running.get(url(origin))
    assert (refused.status, refused.getheader("X-Deny-Reason")) == (503, "decider_unavailable")
    assert running.ended() == 0 and len(origin.seen) == before


def test_it_ends_with_its_decider_and_with_its_lifeline(proxy: Any) -> None:
    running = proxy(allow, ["127.0.0.1"])
    running.decider.stream.shutdown(socket.SHUT_RDWR)
    assert running.ended() == 0
    running = proxy(allow, ["127.0.0.1"])
    running.lifeline.close()
    assert running.ended() == 0


@pytest.mark.parametrize(
    "said",
    [
        {"t": "hello", "proto": 2, "allowedDomains": [], "deniedDomains": []},
        {"t": "hello", "proto": 1, "allowedDomains": ["*"], "deniedDomains": []},
        {"t": "hello", "proto": 1, "allowedDomains": ["UPPER.example"], "deniedDomains": []},
        {"t": "hello", "proto": 1, "allowedDomains": []},
    ],
)
def test_an_invalid_greeting_does_not_start_it(said: dict[str, Any]) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    ours, theirs = socket.socketpair()
    argv = [*COMMAND, "--listen-fd", str(listener.fileno()), "--decider-fd", str(theirs.fileno())]
    process = subprocess.Popen(
        argv, pass_fds=[listener.fileno(), theirs.fileno()], stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    theirs.close()
    Decider(ours, allow).say(said)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 2 and "serving" not in errors
    ours.close()
    listener.close()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "a decider is required"),
        (["--decider-fd", "0"], "--listen-fd"),
        (["--decider-fd", "0", "--listen", "0.0.0.0:0"], "not a loopback address"),
        (["--decider-fd", "0", "--listen", "127.0.0.1:99999"], "port from 0 to 65535"),
    ],
)
def test_a_mistake_on_the_command_line_is_an_error(words: list[str], complaint: str) -> None:
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30)
    assert done.returncode == 2 and complaint in done.stderr


def test_pipes_do_for_a_decider_and_a_port_can_be_chosen(origin: Origin) -> None:
    to_us, from_proxy = os.pipe()
    to_proxy, from_us = os.pipe()
    argv = [*COMMAND, "--listen", "127.0.0.1:0", "--decider-in", str(to_proxy), "--decider-out", str(from_proxy)]
    process = subprocess.Popen(argv, pass_fds=[to_proxy, from_proxy], stderr=subprocess.PIPE, text=True)
    for theirs in (to_proxy, from_proxy):
        os.close(theirs)
    hello = json.dumps({"t": "hello", "proto": 1, "allowedDomains": ["127.0.0.1"], "deniedDomains": []}).encode()
    os.write(from_us, len(hello).to_bytes(4, "big") + hello)
    assert process.stderr is not None
    address = process.stderr.readline().split()[-1]
    assert address.startswith("127.0.0.1:")
    client = http.client.HTTPConnection(address, timeout=20)
    client.request("GET", url(origin))
    asked = b""
    while b'"req"' not in asked:
        asked += os.read(to_us, 65536)
    verdict = b'{"t":"verdict","id":1,"action":"deny","status":418}'
    os.write(from_us, len(verdict).to_bytes(4, "big") + verdict)
    assert client.getresponse().status == 418
    process.terminate()
    assert process.wait(20) == 0 and "SIGTERM" in process.stderr.read()
    process.stderr.close()
    for ours in (from_us, to_us):
        os.close(ours)
