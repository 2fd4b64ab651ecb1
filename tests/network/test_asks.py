"""A connection to a host that is not listed waits for its owner: real programs, real connections."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.asks import ways_to_ask
from sandbox.audit.feed import subscribe_audit_feed
from sandbox.info import Ask
from sandbox.network.gate import refusal
from tests.network.furnished import Furnished
from tests.network.room import LOCAL, Listen, Origin, Walled, Walls, echo

pytestmark = pytest.mark.walls

NAMES = {"good.test": LOCAL, "other.test": LOCAL}


class Owner:
    """`on_ask` that answers what it is told to, and remembers what it was asked."""

    def __init__(self, *answers: str | None) -> None:
        self.asked: list[Ask] = []
        self._answers = list(answers)

    def on_ask(self, ask: Ask) -> str | None:
        self.asked.append(ask)
        return self._answers.pop(0) if self._answers else "deny"


@pytest.fixture
def asking(walled: Walls) -> Callable[..., Walled]:
    def make(owner: object | None, **network: Any) -> Walled:
        network = {"ask": True, "allowed_hosts": LOCAL, **network}
        more = {"hooks": owner} if owner is not None else {}
        return walled(names=NAMES, more=more, **network)

    return make


Asking = Callable[..., Walled]


def is_of(ask: Ask, program: str, room: Walled) -> bool:
    """Whether the question names that program, where the engine at hand can tell which one it was."""
    return not room.sandbox._can.programs or program == ask.program or program in os.path.basename(ask.exe)


@pytest.fixture
def record() -> Iterator[list[dict[str, Any]]]:
    """The record's entries about questions."""
    found: list[dict[str, Any]] = []
    end = subscribe_audit_feed(lambda entry: found.append(dict(entry)) if entry.get("operation") == "ask" else None)
    yield found
    end()


def test_what_the_owner_allows_is_reached(asking: Asking, origin: Origin, record: list[dict[str, Any]]) -> None:
    owner = Owner("once")
    room = asking(owner)
    result = room.run(f"curl -sS http://good.test:{origin.port}/x?token=1")
    assert result.stdout == f"GET /x?token=1 for good.test:{origin.port}\n"
    (ask,) = owner.asked
    assert (ask.kind, ask.host, ask.port, ask.method, ask.path) == ("host", "good.test", origin.port, "GET", "/x")
    assert is_of(ask, "curl", room)
    if room.sandbox._running.pid is not None:
        assert os.path.isabs(ask.exe) and ask.pid is not None and ask.pid > 1
    event = room.heard.wait(lambda one: one["status_code"] == 200)
    assert event["rule"] == "ask: once"
    asked, answered = record
    assert asked["target"] == answered["target"] == f"good.test:{origin.port}"
    assert answered["result"] == "allowed" and answered["metadata"]["by"] == "on_ask"


def test_what_the_owner_denies_is_refused_with_the_ordinary_text(asking: Asking, origin: Origin) -> None:
    room = asking(Owner("deny"))
    result = room.run(f"curl -sS -i http://good.test:{origin.port}/")
    assert "403 Forbidden" in result.stdout and f"Blocked by the sandbox: good.test:{origin.port}" in result.stdout
    assert "add 'good.test' to network.allowed_hosts; its owner was asked and denied it" in result.stdout
    assert "good.test" not in room.asked  # not even resolved


def test_without_anybody_there_it_is_refused_at_once(asking: Asking, origin: Origin) -> None:
    room = asking(None, ask_timeout=100000)
    result = room.run(f"curl -sS http://good.test:{origin.port}/")
    assert "nobody was there to answer" in result.stdout
    assert room.heard.blocked("good.test")["reason"].count("nobody was there to answer") == 1


def test_without_an_answer_in_time_it_is_refused(asking: Asking, origin: Origin) -> None:
    room = asking(None, ask_timeout="20ms")
    room.sandbox.asks(watch=True)
    assert "did not answer within 0.02 s" in room.run(f"curl -sS http://good.test:{origin.port}/").stdout


def test_for_the_sandbox_is_asked_once_and_for_that_port_alone(
    asking: Asking, origin: Origin, listener: Listen
) -> None:
    owner = Owner("sandbox", "sandbox")
    room = asking(owner)
    other = listener(echo).port
    fetch = f"curl -sS http://good.test:{origin.port}/"
    assert room.run(f"{fetch}a; {fetch}b").stdout.count("for good.test") == 2
    code = f"import socket; s = socket.create_connection(('good.test', {other})); s.sendall(b'hi'); print(s.recv(9))"
    assert room.python(code).stdout == "b'hi'\n"
    assert [(one.port, one.method) for one in owner.asked] == [(origin.port, "GET"), (other, "")]


def test_once_is_asked_again_for_the_next_connection(asking: Asking, origin: Origin) -> None:
    owner = Owner("once", "deny")
    fetch = f"curl -sS http://good.test:{origin.port}/"
    result = asking(owner).run(f"{fetch}a; {fetch}b")
    assert result.stdout.startswith("GET /a for") and "denied it" in result.stdout


def test_always_is_in_the_users_config_and_holds_in_the_next_sandbox(
    asking: Asking, origin: Origin, walled: Walls, tmp_path: Path
) -> None:
    from sandbox.config.layers import resolve

    assert "GET /" in asking(Owner("always")).run(f"curl -sS http://good.test:{origin.port}/").stdout
    network = resolve({}, project=str(tmp_path)).config.network
    assert network.allowed_hosts == [f"good.test:{origin.port}"]
    room = walled(names=NAMES, allowed_hosts=[*network.allowed_hosts, *LOCAL])
    assert "GET /" in room.run(f"curl -sS http://good.test:{origin.port}/").stdout


def test_many_connections_share_one_question(asking: Asking, origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Owner):
        def on_ask(self, ask: Ask) -> str | None:
            self.asked.append(ask)
            all_wait.wait(20)
            return "once"

    all_wait = threading.Event()
    owner = Slow()
    room = asking(owner)
    asks = room.sandbox._asking().asks()
    ask = asks.ask
    count = 0

    def counted(*arguments: Any) -> Any:
        nonlocal count
        waits = ask(*arguments)
        count += 1
        if count == 5:
            all_wait.set()
        return waits

    monkeypatch.setattr(asks, "ask", counted)
    url = f"http://good.test:{origin.port}/"
    result = room.run(f"for i in 1 2 3 4 5; do curl -sS {url} & done; wait")
    assert result.stdout.count("GET / for good.test") == 5
    assert len(owner.asked) == 1


def test_a_program_that_gave_up_is_let_through_when_it_tries_again(asking: Asking, origin: Origin) -> None:
    asked, answer, answered = threading.Event(), threading.Event(), threading.Event()

    class Late(Owner):
        def on_ask(self, ask: Ask) -> str | None:
            self.asked.append(ask)
            asked.set()
            answer.wait(20)
            return "once"

    owner = Late()
    room = asking(owner)
    room.sandbox.on_event(lambda one: answered.set() if "'state': 'allowed'" in str(one) else None)
    # As pip does: it gives up after a while, then makes another attempt.
    with room.sandbox.spawn(["curl", "-sS", f"http://good.test:{origin.port}/x"]) as first:
        assert asked.wait(20)
        first.kill()
        first.wait(60)
    answer.set()
    assert answered.wait(20)
    assert "GET /x" in room.run(f"curl -sS http://good.test:{origin.port}/x").stdout
    assert len(owner.asked) == 1


# -- what is never asked about


@pytest.mark.parametrize(
    ("url", "network"),
    [
        ("http://good.test:{port}/", {"denied_hosts": ["good.test"]}),
        ("http://10.1.2.3/", {}),
        ("http://169.254.169.254/", {}),
        ("http://[fd00::1]/", {}),
        ("http://198.18.77.77/", {}),
        ("http://host.sandbox.internal:{port}/", {}),
        ("http://good.test:22/", {"allow_git": False}),
        ("http://good.test:{port}/", {"policy_script": "def is_host_allowed(host):\n    return False\n"}),
        ("http://good.test:{port}/no", {"http": {"allow": ["GET good.test/yes"]}}),
        ("http://good.test:{port}/no", {"http": {"deny": ["GET good.test/no"]}}),
    ],
)
def test_what_is_refused_for_another_reason_is_not_asked_about(
    asking: Asking, origin: Origin, url: str, network: dict[str, Any]
) -> None:
    owner = Owner("sandbox", "sandbox")
    result = asking(owner, **network).run(f"curl -sS -g -m 20 {url.format(port=origin.port)}")
    assert owner.asked == [] and "Blocked by the sandbox" in result.stdout and "nobody" not in result.stdout


def test_a_name_that_leads_to_a_private_address_is_still_refused(asking: Asking, walled: Walls) -> None:
    owner = Owner("always")
    room = walled(names={"inside.test": ["10.1.2.3"]}, ask=True, more={"hooks": owner})
    assert "which is private" in room.run("curl -sS http://inside.test/").stdout
    assert len(owner.asked) == 1


def test_a_host_that_is_denied_later_is_no_longer_reached(asking: Asking, origin: Origin) -> None:
    room = asking(Owner("sandbox"))
    assert "GET /" in room.run(f"curl -sS http://good.test:{origin.port}/").stdout
    room.sandbox.update_network({"denied_hosts": ["good.test"]})
    assert "denied by network.denied_hosts" in room.run(f"curl -sS http://good.test:{origin.port}/").stdout
    room.sandbox.update_network({"denied_hosts": [], "ask": False})
    assert "is not allowed" in room.run(f"curl -sS http://good.test:{origin.port}/").stdout


def test_asking_can_be_switched_on_while_the_sandbox_runs(walled: Walls, origin: Origin) -> None:
    owner = Owner("once")
    room = walled(names=NAMES, allowed_hosts=LOCAL, more={"hooks": owner})
    fetch = f"curl -sS http://good.test:{origin.port}/"
    assert "Blocked" in room.run(fetch).stdout and owner.asked == []
    room.sandbox.update_network({"ask": True})
    assert "GET /" in room.run(fetch).stdout


def test_a_script_that_takes_the_place_of_the_list_keeps_deciding(walled: Walls, origin: Origin) -> None:
    script = "def is_host_allowed(host):\n    return host == 'other.test'\n"
    owner = Owner("sandbox")
    room = walled(names=NAMES, policy_script=script, ask=True, block_private_ips=False, more={"hooks": owner})
    assert "Blocked" in room.run(f"curl -sS http://good.test:{origin.port}/").stdout and owner.asked == []
    result = room.run(f"curl -sS http://other.test:{origin.port}/")
    assert owner.asked == [], result


# -- other protocols


def test_a_server_that_speaks_first(asking: Asking, listener: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal, "FIRST_LINE", 0.01)
    owner = Owner("once")
    port = listener(lambda client: client.sendall(b"220 ready\r\n")).port
    code = f"import socket; print(socket.create_connection(('good.test', {port})).recv(99))"
    room = asking(owner)
    assert room.python(code).stdout == "b'220 ready\\r\\n'\n"
    assert owner.asked[0].method == "" and is_of(owner.asked[0], "python3", room)


@pytest.mark.parametrize(
    "options", ["-x http://198.18.0.3:3128", "-p -x http://198.18.0.3:3128", "-x socks5h://198.18.0.3:1080"]
)
@pytest.mark.parametrize("answer", ["once", "deny"])
def test_an_explicit_proxy(asking: Asking, origin: Origin, options: str, answer: str) -> None:
    owner = Owner(answer)
    room = asking(owner)
    result = room.run(f"curl -sS {options} http://good.test:{origin.port}/x")
    assert ("GET /x for good.test" in result.stdout) == (answer == "once"), result
    (ask,) = owner.asked
    absolute = options.startswith("-x http")
    assert (ask.host, ask.method, ask.path) == ("good.test", *(("GET", "/x") if absolute else ("", "")))
    assert is_of(ask, "curl", room)


def test_over_ipv6_the_program_is_found_too(asking: Asking, origin: Origin) -> None:
    owner = Owner("once")
    room = asking(owner)
    assert "GET /" in room.run(f"curl -6 -sS http://good.test:{origin.port}/").stdout
    assert is_of(owner.asked[0], "curl", room)


def test_a_program_that_hides_its_name_is_shown_escaped(asking: Asking, origin: Origin) -> None:
    owner = Owner("deny")
    code = f"""
import ctypes, socket
ctypes.CDLL(None).prctl(15, b"\\x1b[2Jx'\\n", 0, 0, 0)
s = socket.create_connection(('good.test', {origin.port}))
s.sendall(b'GET /\\x1b[31m HTTP/1.1\\r\\n\\r\\n'); s.recv(99)"""
    room = asking(owner)
    room.python(code)
    assert owner.asked[0].text.isprintable()
    assert "\\x1b[2Jx\\'" in owner.asked[0].text or not room.sandbox._can.programs
    assert owner.asked[0].path == "/\x1b[31m"


def test_a_flood_of_names_asks_few_questions_and_blocks_nobody_else(asking: Asking, origin: Origin) -> None:
    owner = Owner()
    room = asking(owner)
    code = f"""
import urllib.request as u
for number in range(60):
    try: u.urlopen(f'http://{{number}}.test:{origin.port}/')
    except Exception as e: print(e)"""
    assert room.python(code).stdout.count("Error 403") == 60
    assert len(owner.asked) <= 12
    assert room.run("echo still here").stdout == "still here\n"


def test_the_end_of_the_sandbox_does_not_wait_for_an_answer(
    asking: Asking, origin: Origin, record: list[dict[str, Any]]
) -> None:
    asked = threading.Event()
    room = asking(None, ask_timeout="1h")
    room.sandbox.asks(watch=True)
    room.sandbox.on_event(lambda event: asked.set() if event["type"] == "ask" else None)
    waits = room.sandbox.spawn(f"curl -sS http://good.test:{origin.port}/")
    assert asked.wait(20)
    room.close()
    waits.close()
    assert record[-1]["summary"] == f"ask withdrawn: good.test:{origin.port}"


# -- intercepted


def intercepted(furnished: Callable[..., Furnished], owner: object, **network: Any) -> Furnished:
    allowed = {"allowed_hosts": ["127.0.0.1"], "ask": True}
    return furnished({**allowed, **network}, hooks=owner)


def test_each_request_to_an_intercepted_host_is_asked_about(furnished: Callable[..., Furnished]) -> None:
    owner = Owner("once", "deny")
    place = intercepted(furnished, owner)
    got = place.run(
        "curl", "-sS", place.url(path="/read?q=1"), "--next", "-sS", "-d", "stolen", place.url(path="/write")
    )
    assert json.loads(got.stdout.partition("}")[0] + "}")["target"] == "/read?q=1", got
    assert "its owner was asked and denied it" in got.stdout
    assert [(one.method, one.path) for one in owner.asked] == [("GET", "/read"), ("POST", "/write")]
    origin = place.origins["api.test"]
    assert [one["target"] for one in origin.seen] == ["/read?q=1"] and "stolen" not in str(origin.seen)


def test_nothing_is_dialled_before_the_owner_allowed_a_request(furnished: Callable[..., Furnished]) -> None:
    place = intercepted(furnished, Owner("deny"))
    assert "denied it" in place.run("curl", "-sS", place.url()).stdout
    assert place.origins["api.test"].connections == 0


def test_for_the_sandbox_ends_the_questions_of_a_connection(furnished: Callable[..., Furnished]) -> None:
    owner = Owner("sandbox")
    place = intercepted(furnished, owner)
    urls = [place.url(path=f"/{n}") for n in range(3)]
    assert place.run("curl", "-sS", *urls).exit_code == 0
    assert [one["target"] for one in place.origins["api.test"].seen] == ["/0", "/1", "/2"] and len(owner.asked) == 1


def test_an_http2_client_is_asked_for_each_stream(furnished: Callable[..., Furnished]) -> None:
    owner = Owner("once", "deny")
    place = intercepted(furnished, owner)
    # Node's client offers HTTP/2 alone; both streams are open at the same time.
    code = f"""
const client = require('http2').connect('{place.url(path="")}', {{ALPNProtocols: ['h2']}});
const get = (path) => new Promise((done) => client.request({{':path': path}})
  .on('response', (headers) => done(headers[':status'])).resume());
Promise.all([get('/a'), get('/b')]).then((all) => {{ console.log(all.join(' ')); client.close(); }});"""
    got = place.run("node", "-e", code)
    first, second = (one.path for one in owner.asked)  # whichever came first
    assert got.stdout == ("200 403\n" if first == "/a" else "403 200\n"), got
    assert {first, second} == {"/a", "/b"}
    assert [one["target"] for one in place.origins["api.test"].seen] == [first]


def test_a_websocket_waits_for_the_answer_to_its_upgrade(furnished: Callable[..., Furnished]) -> None:
    owner = Owner("once")
    place = intercepted(furnished, owner, allowed_hosts=["127.0.0.1"])
    place.origins["api.test"].answer = lambda *_: (200, [], b"no upgrade here")
    headers = ["-H", "Connection: Upgrade", "-H", "Upgrade: websocket", "-H", "Sec-WebSocket-Version: 13"]
    key = ["-H", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    got = place.run("curl", "-sS", "--http1.1", *headers, *key, place.url(path="/socket"))
    assert got.stdout == "no upgrade here", got
    assert [(one.method, one.path) for one in owner.asked] == [("GET", "/socket")]


def test_a_placeholder_for_another_host_is_refused_without_a_question(furnished: Callable[..., Furnished]) -> None:
    owner = Owner("sandbox")
    secrets = {"KEY": {"value": "sk-the-real-one-123456", "hosts": ["other.test"]}}
    place = intercepted(furnished, owner, secrets=secrets)
    got = place.run("curl", "-sS", "-H", f"X-Key: {place.placeholders['KEY']}", place.url())
    assert "Blocked by the sandbox" in got.stdout and owner.asked == [] and place.origins["api.test"].seen == []


def test_a_hook_that_refuses_does_so_before_a_question(furnished: Callable[..., Furnished]) -> None:
    class Refusing(Owner):
        def on_request(self, request: Any) -> None:
            return None

    owner = Refusing("sandbox")
    place = intercepted(furnished, owner)
    assert "blocked by" in place.run("curl", "-sS", place.url()).stdout and owner.asked == []


def test_another_protocol_on_an_intercepted_host_is_refused_without_a_question(
    asking: Asking, listener: Listen
) -> None:
    owner = Owner("sandbox")
    port = listener(echo).port
    room = asking(owner, intercept=True)
    room.python(f"import socket; s = socket.create_connection(('good.test', {port})); s.sendall(b'\\x00hi'); s.recv(9)")
    assert "neither TLS nor HTTP" in room.heard.blocked("good.test")["reason"] and owner.asked == []


def test_a_notification_is_a_way_of_every_sandbox(
    asking: Asking, origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "notify"
    program.write_text("#!/bin/sh\necho sandbox\n")
    program.chmod(0o755)
    monkeypatch.setenv(ways_to_ask.NOTIFIER, str(program))
    assert "GET /" in asking(None).run(f"curl -sS http://good.test:{origin.port}/").stdout
