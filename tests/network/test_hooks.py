"""The owner's own code on the path of every request: what it can do, and what its failures do."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import http.client
import threading
from collections.abc import Callable
from typing import Any

import pytest

from sandbox.network.http.headers import Headers
from sandbox.network.http.message import Request, Response
from sandbox.network.intercept import hooks as hooks_module
from sandbox.network.intercept.hooks import Blocked, Hooks
from tests.network.lab import PLACEHOLDER, VALUE, Lab, secret

MakeLab = Callable[..., Lab]
API, OTHER = "api.example.com", "other.example.com"


class Recorded:
    """The specification's sample, in Python."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_request(self, req: Request) -> Request | None:
        req.headers.set("X-Sandbox-ID", "vm-1")
        self.seen.append(f"{req.method} {req.url}")
        if "/admin" in req.path:
            return None
        return req

    def on_response(self, resp: Response, req: Request) -> Response:
        if "application/json" in (resp.headers.get("Content-Type") or ""):
            resp.body = resp.body.replace(b"secret", b"[redacted]")
        return resp


def test_the_seeds_sample_hooks_work(make_lab: MakeLab) -> None:
    hooks = Recorded()
    lab = make_lab(hooks=hooks)
    lab.origins[API].answer = lambda *_: (200, [("Content-Type", "application/json")], b'{"a": "secret"}')
    assert lab.ask("GET", "/data?x=1")[2] == b'{"a": "[redacted]"}'
    status, headers, text = lab.ask("GET", "/admin/users")
    assert (status, headers["x-proxy-error"]) == (403, "blocked-by-allowlist")
    assert b"blocked by Recorded.on_request" in text
    assert hooks.seen == ["GET https://api.example.com/data?x=1", "GET https://api.example.com/admin/users"]
    [seen] = lab.origins[API].seen
    assert dict(seen["headers"])["x-sandbox-id"] == "vm-1"


def test_a_compressed_answer_is_plain_to_a_hook(make_lab: MakeLab) -> None:
    def on_response(resp: Response, req: Request) -> Response:
        resp.body = resp.body.upper()
        return resp

    lab = make_lab(hooks=Hooks(on_response=on_response))
    lab.origins[API].answer = lambda *_: (200, [("Content-Encoding", "gzip")], gzip.compress(b"quiet"))
    _, headers, body = lab.ask()
    assert body == b"QUIET"
    assert "content-encoding" not in headers


def test_hooks_may_be_coroutines_and_read_and_replace_bodies(make_lab: MakeLab) -> None:
    async def on_request(req: Request) -> Request:
        req.body = (await req.read())[::-1]
        req.method, req.path = "PUT", "/turned"
        return req

    lab = make_lab(hooks=Hooks(on_request=on_request))
    lab.ask("POST", "/x?y", body=b"abc")
    [seen] = lab.origins[API].seen
    assert (seen["method"], seen["target"], seen["body"]) == ("PUT", "/turned?y", b"cba")


def test_a_hook_that_leaves_the_body_alone_leaves_it_streaming(make_lab: MakeLab) -> None:
    more = threading.Event()
    lab = make_lab(hooks=Hooks(on_request=lambda req: req, on_response=lambda resp, req: resp))

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        await writer.drain()
        await asyncio.to_thread(more.wait)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    lab.origins[API].raw = slow
    connection = http.client.HTTPConnection(API, 443)
    connection.sock = lab.tls_socket()
    connection.request("GET", "/")
    response = connection.getresponse()
    assert response.read(5) == b"first"
    more.set()
    assert response.read() == b""


def raises(req: Request) -> Request:
    raise RuntimeError(f"cannot cope with {VALUE}")


def blocks(req: Request) -> Request:
    raise Blocked("not on a Sunday")


def returns_nonsense(req: Request) -> Any:
    return 42


def looks_at_too_much(req: Request) -> Request:
    assert req.body
    return req


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        (raises, b"raises) failed: RuntimeError"),
        (blocks, b"not on a Sunday"),
        (returns_nonsense, b"returned int"),
        (looks_at_too_much, b"larger than"),
    ],
)
def test_a_hook_that_fails_blocks_the_request_and_is_named(
    make_lab: MakeLab, hook: Callable[[Request], Any], reason: bytes
) -> None:
    lab = make_lab(hooks=Hooks(on_request=hook))
    status, _, text = lab.ask("POST", "/", body=b"x" * (2**24 + 1 if hook is looks_at_too_much else 9))
    assert status == 403
    assert reason in text
    assert hook.__name__.encode() in text
    assert lab.origins[API].seen == []
    lab.wait_until_idle()
    decision = lab.reports[0]["decision"]
    assert not decision.allowed
    assert decision.rule.startswith("hook: on_request (")
    assert VALUE not in repr(lab.reports)


def test_a_hook_that_hangs_blocks_its_request_and_nobody_elses(
    make_lab: MakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks_module, "TIMEOUT", 0.3)
    release = threading.Event()

    def hangs(req: Request) -> Request:
        if req.path == "/hang":
            release.wait()
        return req

    lab = make_lab(hooks=Hooks(on_request=hangs))
    status, _, text = lab.ask("GET", "/hang")
    assert status == 403
    assert b"did not answer within" in text
    monkeypatch.setattr(hooks_module, "TIMEOUT", 60)  # on a busy machine an answer may take longer
    assert lab.ask("GET", "/fine")[0] == 200
    release.set()


def redirecting(url: str) -> Hooks:
    def on_request(req: Request) -> Request:
        req.url = url
        return req

    return Hooks(on_request=on_request)


def test_a_hook_may_send_a_request_elsewhere(make_lab: MakeLab) -> None:
    lab = make_lab(hooks=redirecting("https://other.example.com/there?now=1"))
    assert lab.ask("GET", "/here")[0] == 200
    assert lab.origins[API].seen == []
    [seen] = lab.origins[OTHER].seen
    assert (seen["target"], dict(seen["headers"])["host"]) == ("/there?now=1", OTHER)


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("https://evil.example/", b"network.allowed_hosts"),
        ("https://169.254.169.254/latest", b"network.allowed_hosts"),
        ("https://other.example.com/private/x", b"network.http.deny"),
        ("https://198.18.3.4/", b"network.allowed_hosts"),
    ],
)
def test_a_hook_that_changes_the_destination_meets_every_rule_there(make_lab: MakeLab, url: str, rule: bytes) -> None:
    lab = make_lab({"http": {"deny": ["* other.example.com/private/**"]}}, hooks=redirecting(url))
    status, _, text = lab.ask("GET", "/here")
    assert status == 403
    assert rule in text
    assert lab.dialled == ["api.example.com:443"]


def test_a_hook_cannot_carry_a_secret_to_another_host(make_lab: MakeLab) -> None:
    lab = make_lab({"secrets": {"KEY": secret()}}, hooks=redirecting("https://other.example.com/"))
    status, _, text = lab.ask("GET", "/", {"Authorization": f"Bearer {PLACEHOLDER}"})
    assert status == 403
    assert b"the secret KEY must not be sent to other.example.com" in text
    assert lab.origins[OTHER].seen == []


def test_streams_side_by_side_are_sent_to_a_host_that_knows_only_http1(make_lab: MakeLab) -> None:
    from tests.network.test_http2 import Client

    lab = make_lab(hosts={API: ["h2"], OTHER: ["http/1.1"]}, hooks=redirecting("https://other.example.com/"))
    client = Client(lab)
    numbers = [client.begin(f"/{one}") for one in range(8)]
    for number in numbers:
        assert client.answer(number)[0][":status"] == "200"
        client.events.clear()
        break
    client.close()
    lab.wait_until_idle()
    assert 1 <= len(lab.origins[OTHER].seen) <= 8
    assert lab.raised == []


def test_hooks_see_placeholders_never_values(make_lab: MakeLab) -> None:
    shown: list[str] = []

    def on_request(req: Request) -> Request:
        shown.append(req.headers["Authorization"])
        return req

    def on_response(resp: Response, req: Request) -> Response:
        shown.append(req.headers["authorization"] + resp.body.decode())
        return resp

    lab = make_lab({"secrets": {"KEY": secret()}}, hooks=Hooks(on_request=on_request, on_response=on_response))
    lab.ask("GET", "/", {"Authorization": f"Bearer {PLACEHOLDER}"})
    assert VALUE not in "".join(shown)
    assert PLACEHOLDER in shown[0]


def test_certificates_can_be_pinned(make_lab: MakeLab) -> None:
    accepted: list[str] = []

    def on_tls_verify(host: str, certs: list[Any]) -> None:
        fingerprint = certs[0].fingerprint(__import__("cryptography").hazmat.primitives.hashes.SHA256()).hex()
        accepted.append(fingerprint)
        if host == OTHER:
            raise Blocked(f"{host} shows {fingerprint[:8]}, not the pinned one")

    lab = make_lab(hooks=Hooks(on_tls_verify=on_tls_verify))
    assert lab.ask()[0] == 200
    lab.host = OTHER
    status, _, text = lab.ask()
    assert status == 403
    assert b"not the pinned one" in text
    assert lab.origins[OTHER].bytes_received == 0
    assert len(accepted) == 2
    assert len(accepted[0]) == len(hashlib.sha256().hexdigest())


def test_headers_are_found_in_any_case_and_kept_in_order() -> None:
    headers = Headers([(b"Set-Cookie", b"a"), (b"set-cookie", b"b"), (b"X", b"1")])
    assert headers.get_all("SET-COOKIE") == ["a", "b"]
    assert headers["x"] == "1"
    assert "y" not in headers
    headers["X"] = "2"
    assert headers.get("X") == "2"
    del headers["set-cookie"]
    assert list(headers) == ["X"]


@pytest.mark.parametrize(("name", "value"), [("X", "a\r\nY: b"), ("X\r\n", "a"), ("X:", "a"), ("", "a"), ("X", "\0")])
def test_no_header_can_smuggle_another(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="not a header field"):
        Headers().set(name, value)
