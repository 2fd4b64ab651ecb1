"""Policy scripts in Starlark: the specification's sample as it stands, and every way a script can go wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandbox.errors import ConfigError
from sandbox.network.http.body import Whole
from sandbox.network.http.headers import Headers
from sandbox.network.http.message import Request, Response
from sandbox.network.intercept import script as script_module
from sandbox.network.intercept.script import Script
from tests.network.lab import Lab

MakeLab = Callable[..., Lab]

SAMPLE = """
# Starlark policy script

def on_request(req):
    # Block requests to specific domains
    if "facebook.com" in req.host:
        return None  # Block

    # Add auth header for specific hosts
    if req.host == "api.internal.com":
        req.headers["Authorization"] = "Bearer " + secrets["INTERNAL_TOKEN"]

    return req

def on_response(resp, req):
    # Log response sizes
    print("Response from %s: %d bytes" % (req.host, len(resp.body)))
    return resp

def is_host_allowed(host):
    allowed = ["api.openai.com", "api.anthropic.com"]
    return host in allowed or host.endswith(".amazonaws.com")
"""


def script(source: str, log: list[str] | None = None) -> Script:
    return Script(source, {"INTERNAL_TOKEN": "the-token"}, (log if log is not None else []).append)


def request(host: str = "api.example.com", **headers: str) -> Request:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request("GET", "https", host, 443, "/path?q=1", Headers(pairs), Whole(b"body"))


def test_the_seeds_sample_runs_unchanged() -> None:
    log: list[str] = []
    policy = script(SAMPLE, log)
    assert policy.on_request(request("www.facebook.com")) is None
    changed = policy.on_request(request("api.internal.com"))
    assert changed is not None
    assert changed.headers["Authorization"] == "Bearer the-token"
    same = policy.on_request(request())
    assert same is not None
    assert "Authorization" not in same.headers
    policy.on_response(Response(200, Headers(), Whole(b"12345")), request())
    assert log == ["Response from api.example.com: 5 bytes"]
    for host, allowed in (("api.openai.com", True), ("x.amazonaws.com", True), ("evil.example", False)):
        decision = policy.host_allowed(host)
        assert decision is not None
        assert decision.allowed is allowed
        assert decision.rule == "network.policy_script: is_host_allowed"


def test_is_allowed_is_the_same_question() -> None:
    decision = script("def is_allowed(host): return True").host_allowed("a.example")
    assert decision is not None
    assert decision.allowed


def test_a_script_without_an_opinion_on_hosts_has_none() -> None:
    assert script("def on_request(req): return req").host_allowed("a.example") is None


def test_everything_can_be_changed() -> None:
    policy = script(
        """
def on_request(req):
    req.headers.pop("X-Old")
    return changed(req, method = "POST", path = "/new", query = "", body = req.body + "!")
def on_response(resp, req):
    return changed(resp, status = 418, body = json.encode({"was": resp.body}))
"""
    )
    out = policy.on_request(request(**{"x-old": "1", "x-kept": "2"}))
    assert out is not None
    assert (out.method, out.url, out.body) == ("POST", "https://api.example.com/new", b"body!")
    assert [name for name, _ in out.headers.pairs] == [b"x-kept", b"Content-Length"]
    back = policy.on_response(Response(200, Headers(), Whole(b"tea")), request())
    assert back is not None
    assert (back.status, back.body) == (418, b'{"was":"tea"}')


def test_a_script_works_on_real_requests(make_lab: MakeLab) -> None:
    source = 'def on_request(req):\n  req.headers["X-Script"] = req.path\n  return None if req.path == "/no" else req'
    lab = make_lab({"policy_script": source})
    assert lab.ask("GET", "/yes")[0] == 200
    assert dict(lab.origins["api.example.com"].seen[0]["headers"])["x-script"] == "/yes"
    status, _, text = lab.ask("GET", "/no")
    assert status == 403
    assert b"policy_script: on_request" in text


def test_a_script_can_be_replaced_while_the_sandbox_lives(make_lab: MakeLab) -> None:
    lab = make_lab({"policy_script": "def on_request(req): return None"})
    assert lab.ask()[0] == 403
    lab.update({"policy_script": "def on_request(req): return req"})
    assert lab.ask()[0] == 200


FAILURES = {
    "an error": "def on_request(req): return 1 // 0",
    "a loop": "def on_request(req):\n  for i in range(2000000000):\n    pass\n  return req",
    "recursion": "def f(x): return f(x)\ndef on_request(req): return f(req)",
    "a wrong answer": "def on_request(req): return 42",
    "a missing secret": 'def on_request(req): return secrets["NOPE"]',
    "a header that smuggles": 'def on_request(req):\n  req.headers["X"] = "a\\r\\nY: b"\n  return req',
}


@pytest.mark.parametrize("what", FAILURES)
def test_a_script_that_fails_blocks_and_is_named(make_lab: MakeLab, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_module, "SECONDS", 0.2)
    lab = make_lab({"policy_script": FAILURES[what]})
    status, _, text = lab.ask()
    assert status == 403
    assert b"policy" in text
    assert lab.origins["api.example.com"].seen == []


@pytest.mark.parametrize(
    "source",
    [
        "def on_request(:",
        "load('//x', 'y')",
        "fail('no')",
        "x = 1 // 0",
        "def f(x): return f(x)\nx = f(1)",
        "open('/etc/passwd')",
    ],
)
def test_a_script_that_cannot_be_loaded_is_a_mistake_in_the_configuration(source: str) -> None:
    with pytest.raises(ConfigError, match=r"network\.policy_script"):
        script(source)


def test_an_error_about_a_host_refuses_it() -> None:
    decision = script("def is_host_allowed(host): return host[99999]").host_allowed("a.example")
    assert decision is not None
    assert not decision.allowed
    assert "policy script failed" in decision.reason
