"""Ports inside, by URL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from sandbox.websocket import WebSocketClient
from tests.server.serving import Served

# What it is asked, it says; and it tries to leave things in the caller's browser.
ECHO = r"""
import http.server, json, sys, urllib.parse
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        size = int(self.headers.get("content-length") or 0)
        chunks = b""
        while self.headers.get("transfer-encoding") and not chunks.endswith(b"0\r\n\r\n"):
            chunks += self.rfile.readline()
        said = {"method": self.command, "path": self.path, "headers": dict(self.headers),
                "body": self.rfile.read(size).decode("latin-1")}
        body = json.dumps(said).encode()
        self.send_response(307 if "to=" in self.path else 418 if "teapot" in self.path else 200)
        if "to=" in self.path:
            self.send_header("Location", urllib.parse.unquote(self.path.partition("to=")[2]))
        for name, value in (("Content-Length", str(len(body))), ("Set-Cookie", "evil=1"), ("X-Inside", "yes"),
                            ("Content-Security-Policy", "default-src *"), ("NEL", "{}"), ("Report-To", "{}"),
                            ("Refresh", "0; url=/"), ("WWW-Authenticate", "Basic"),
                            ("Access-Control-Allow-Origin", "*"), ("Service-Worker-Allowed", "/"),
                            ("X-Frame-Options", "ALLOWALL"), ("Cache-Control", "max-age=9"), ("ETag", '"1"'),
                            ("Set-Cookie2", "evil=1"), ("Secure-Session-Registration", "(ES256)"),
                            ("Speculation-Rules", "/rules"), ("Link", "</x>; rel=preload"), ("Link", "</y>"),
                            ("X-Accel-Redirect", "/internal"), ("X-Accel-Expires", "99"), ("X-Sendfile", "/etc/passwd"),
                            ("Surrogate-Control", "max-age=9"), ("CDN-Cache-Control", "max-age=9"),
                            ("Expires", "Fri, 01 Jan 2100 00:00:00 GMT")):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = answer
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Handler)
print("ready", flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def listening(served: Served, box: str) -> Iterator[str]:
    with served.http.stream(
        "POST",
        f"/v1/sandboxes/{box}/exec",
        json={"command": ["/usr/bin/python3", "-c", ECHO]},
        headers={"Accept": "text/event-stream"},
    ) as answer:
        lines = answer.iter_lines()  # held: without it the answer would be closed
        while "ready" not in next(lines):
            pass
        yield f"/v1/sandboxes/{box}/port/8080"


def test_a_request_reaches_the_program_as_it_was_sent(served: Served, listening: str) -> None:
    answer = served.http.post(f"{listening}/a%2Fb/c%20d?x=1&y=%26", content=b"body", headers={"X-Mine": "1"})
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert (said["method"], said["path"], said["body"]) == ("POST", "/a%2Fb/c%20d?x=1&y=%26", "body")
    assert said["headers"]["x-mine"] == "1"
    assert answer.headers["x-inside"] == "yes"


def test_its_status_is_passed_on(served: Served, listening: str) -> None:
    assert served.http.get(f"{listening}/teapot").status_code == 418


def test_the_program_never_sees_the_callers_token(served: Served, listening: str) -> None:
    sent = {"Cookie": "a=b", "Referer": "http://127.0.0.1/x", "X-Forwarded-For": "192.0.2.1"}
    said = served.http.get(f"{listening}/", headers=sent).json()
    assert served.token not in json.dumps(said)
    assert not {"authorization", "cookie", "referer", "x-forwarded-for"} & {name.lower() for name in said["headers"]}


@pytest.mark.parametrize(
    "to", ["/there?a=1", "there?a=1", "./there?a=1", "http://localhost:8080/there?a=1", "//127.0.0.1/there?a=1"]
)
def test_its_redirect_to_itself_leads_to_itself(served: Served, listening: str, to: str) -> None:
    answer = served.http.post(f"{listening}/?to={quote(to, safe='')}", follow_redirects=True)
    assert answer.url.path == f"{listening}/there" and answer.json()["path"] == "/there?a=1"


@pytest.mark.parametrize(
    "to",
    [
        "http://[::1]:9/", "https://localhost/", "http://[",
        "{server}/api/sandbox/kill", "//{host}/api/sandbox/kill", "/../../../../../api/sandbox/kill",
        "/%2e%2e/%2E./.%2e/../../api/sandbox/kill", "..\\..\\api", "http://127.0.0.1:9/",
        "http://localhost@127.0.0.1:9/", "javascript:alert(1)",
        "/.\t./.\t./.\t./.\t./.\t./api/sandbox/kill",
    ],
)  # fmt: skip
def test_its_redirect_takes_the_callers_token_nowhere_else(served: Served, listening: str, to: str) -> None:
    to = to.format(server=served.address, host=served.address.removeprefix("http://"))
    answer = served.http.post(f"{listening}/?to={quote(to, safe='')}")
    assert answer.status_code == 307
    led = answer.headers.get("location")
    assert led is None or httpx.URL(served.address).join(led).raw_path.startswith(listening.encode() + b"/")
    assert led is None or "." not in led


def test_its_answer_can_neither_set_cookies_nor_run_as_a_page_of_the_server(served: Served, listening: str) -> None:
    headers = served.http.get(f"{listening}/").headers
    assert not {"set-cookie", "nel", "report-to", "refresh", "www-authenticate"} & set(headers)
    assert not {"access-control-allow-origin", "service-worker-allowed"} & set(headers)
    assert headers["x-frame-options"] == "DENY"
    assert headers["content-security-policy"] == "sandbox"


def test_a_browser_gets_only_the_fields_that_describe_a_body(served: Served, listening: str) -> None:
    answer = served.http.get(f"{listening}/", headers={"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"})
    assert answer.status_code == 200 and answer.json()["path"] == "/"
    plain = served.http.get("/v1/health")
    ours = {*plain.headers, "content-security-policy", "content-length", "content-type"}
    assert set(answer.headers) <= ours | {"etag"} and answer.headers["etag"] == '"1"'
    assert answer.headers["cache-control"] == plain.headers["cache-control"]


def test_a_proxy_in_front_of_the_server_is_told_nothing_by_the_program(served: Served, listening: str) -> None:
    headers = served.http.get(f"{listening}/").headers
    obeyed = {"x-accel-redirect", "x-accel-expires", "x-sendfile", "surrogate-control", "cdn-cache-control", "expires"}
    assert not obeyed & set(headers)
    assert headers["cache-control"] == "no-store"


def test_a_field_that_is_there_twice_is_passed_on_whole(served: Served, listening: str) -> None:
    assert served.http.get(f"{listening}/").headers["link"] == "</x>; rel=preload, </y>"


def test_a_port_that_nobody_listens_on_is_502(served: Served, box: str, listening: str) -> None:
    assert served.http.get(f"/v1/sandboxes/{box}/port/8081/").status_code == 502
    assert served.http.get(f"/v1/sandboxes/{box}/port/99999/").status_code in (400, 404)


def test_a_body_of_unknown_length_is_passed_on(served: Served, listening: str) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"some"

    assert served.http.put(f"{listening}/x", content=pieces()).json()["headers"]["transfer-encoding"] == "chunked"


# -- WebSockets

WEBSOCKET = r"""
import base64, hashlib, socket, struct
listener = socket.create_server(("127.0.0.1", 8090))
print("ready", flush=True)
line, _ = listener.accept()
head = b""
while b"\r\n\r\n" not in head:
    head += line.recv(4096)
key = next(x.split(b": ")[1] for x in head.split(b"\r\n") if x.lower().startswith(b"sec-websocket-key"))
offered = [x.split(b": ")[1] for x in head.split(b"\r\n") if x.lower().startswith(b"sec-websocket-protocol")]
chosen = b"".join(b"Sec-WebSocket-Protocol: " + x.split(b",")[-1].strip() + b"\r\n" for x in offered)
accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
line.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
             + accept + b"\r\n" + chosen + b"\r\n")
def frame(data): return b"\x82" + bytes([len(data)]) + data
line.sendall(frame(head.split(b" ")[1] + b"".join(b" " + x for x in offered)))
first, second = line.recv(2)
mask = line.recv(4)
data = bytes(a ^ mask[i % 4] for i, a in enumerate(line.recv(second & 127)))
line.sendall(frame(data.upper()) + b"\x88\x02" + struct.pack(">H", 1000))
line.recv(100)
"""


@contextmanager
def chatting(served: Served, box: str, protocols: list[str], token: str | None) -> Iterator[WebSocketClient]:
    """A WebSocket to the program, which answers once. It chooses the last of the subprotocols that it is offered."""
    with served.http.stream(
        "POST",
        f"/v1/sandboxes/{box}/exec",
        json={"command": ["/usr/bin/python3", "-c", WEBSOCKET]},
        headers={"Accept": "text/event-stream"},
    ) as answer:
        lines = answer.iter_lines()  # held: without it the answer would be closed
        while "ready" not in next(lines):
            pass
        url = f"{served.address}/v1/sandboxes/{box}/port/8090/chat"
        line = WebSocketClient(url, {"Authorization": f"Bearer {token}"} if token else {}, protocols=protocols)
        yield line
        line.send(b"hello")
        assert line.receive() == b"HELLO"
        assert line.receive() == b""
        line.close()
        line.free()


def test_a_websocket_reaches_the_program(served: Served, box: str) -> None:
    with chatting(served, box, [], served.token) as line:
        assert line.receive() == b"/chat"


def test_the_program_chooses_among_the_subprotocols_of_a_websocket(served: Served, box: str) -> None:
    with chatting(served, box, ["one", "two"], served.token) as line:
        assert line.receive() == b"/chat one, two"


def test_the_program_never_sees_the_ticket_of_a_browsers_websocket(served: Served, box: str) -> None:
    ticket = served.http.post("/v1/tickets", json={}).json()["protocol"]
    with chatting(served, box, [ticket, "two"], None) as line:
        assert line.receive() == b"/chat two"


def test_prometheus_can_read_the_type_of_the_metrics(served: Served) -> None:
    words = served.http.get("/metrics").headers["content-type"].split("; ")
    assert words[0] == "text/plain" and "charset=utf-8" in words
    assert len(words) == len({one.partition("=")[0] for one in words})  # Prometheus refuses a parameter twice


def test_metrics_count_sandboxes_and_requests(served: Served, box: str) -> None:
    text = served.http.get("/metrics").text
    assert 'sandbox_count{status="running"} 1.0' in text
    assert f'sandbox_processes{{sandbox="{box}"}}' in text
    assert 'sandbox_http_requests_total{status="200"}' in text
    some: Any = served.limited("read", sandboxes=[box])
    assert some.get("/metrics").status_code == 403


FLOOD = r"""
import socket
server = socket.create_server(("127.0.0.1", 8082))
print("ready", flush=True)
while True:
    line, _ = server.accept()
    line.recv(65536)
    try:
        line.sendall(b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" * 5000 + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    except OSError:
        pass
    line.close()
"""


def test_a_program_that_sends_interim_answers_without_end_is_given_up(served: Served, box: str) -> None:
    command = {"command": ["/usr/bin/python3", "-c", FLOOD]}
    told = {"Accept": "text/event-stream"}
    with served.http.stream("POST", f"/v1/sandboxes/{box}/exec", json=command, headers=told) as answer:
        lines = answer.iter_lines()
        while "ready" not in next(lines):
            pass
        assert served.http.get(f"/v1/sandboxes/{box}/port/8082/").status_code == 502
