"""A server, or a cluster's node, that asks its client for more than it was offered."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from threading import Event, active_count
from typing import Any

import pytest

from sandbox.client import Client
from sandbox.errors import NotFound
from sandbox.home_gate import THEIRS
from tests.network.room import LOCAL
from tests.patience import until
from tests.sandboxes import home, rpc

__all__ = ["home", "rpc"]
pytestmark = pytest.mark.walls
VALUE = "sk-from-a-hook-5d6e7f80"

# Passes everything on to a real server and back, and says something of its own, some times over, at a command with
# SPEAK in it.
NODE = """
import json, subprocess, sys, threading
kept, own, times, command = sys.argv[1], sys.argv[2].encode() + b"\\n", int(sys.argv[3]), sys.argv[4:]
real = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
speaking = threading.Lock()
def say(line):
    with speaking:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
def speak():
    for _ in range(times):
        say(own)
def outwards():
    for line in real.stdout:
        say(line)
threading.Thread(target=outwards, daemon=True).start()
for line in sys.stdin.buffer:
    if b"-of-the-node" in line:
        with open(kept, "ab") as file:
            file.write(line)
        continue
    if b"SPEAK" in line:
        speaker = threading.Thread(target=speak)
        speaker.start()
        if times < 10:
            speaker.join()  # before the command begins
    real.stdin.write(line)
    real.stdin.flush()
real.stdin.close()
real.wait()
"""


def node(rpc: list[str], kept: Path, method: str, params: dict[str, Any], times: int = 1) -> list[str]:
    own: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    if method == "hook":
        own["id"] = "hook-of-the-node"
    return [sys.executable, "-c", NODE, str(kept), json.dumps(own), str(times), *rpc]


REQUEST = {"method": "GET", "url": "https://elsewhere.test/", "headers": [["Host", "elsewhere.test"]]}


class Hooks:
    """Those of a person whose gate puts a key into every request."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.strict = True

    def on_request(self, request: Any) -> Any:
        request.headers.set("Authorization", VALUE)
        return request

    def before_write(self, path: str, size: int) -> None:
        self.called.append(path)

    def helper(self, path: str) -> None:
        self.called.append(path)


@pytest.mark.parametrize(
    "asked",
    [
        {"name": "on_request", "request": REQUEST},
        {"name": "helper", "args": ["/etc/passwd"]},
        {"name": "__setattr__", "args": ["strict", False]},
        {"name": None},
        {},
    ],
    ids=["a hook of the gate here", "another method", "an attribute", "no text", "no name"],
)
def test_only_the_hooks_that_it_was_offered_answer_it(
    asked: dict[str, Any], rpc: list[str], tmp_path: Path, home: Path
) -> None:
    hooks, kept = Hooks(), tmp_path / "answer"
    command = node(rpc, kept, "hook", asked)
    network = {"gate": "client", "allowed_hosts": ["api.test", *LOCAL]}
    with Client({"network": network}, hooks=hooks, command=command) as sandbox:
        assert sandbox.exec("echo SPEAK", check=True).stdout == "SPEAK\n"
        until(lambda: kept.exists() and kept.read_bytes().endswith(b"\n"))
    answer = json.loads(kept.read_text())
    assert answer["result"] == {"blocked": "this client has no such hook"}
    assert hooks.called == [] and hooks.strict and VALUE not in kept.read_text()


@pytest.mark.parametrize("number", [1, 1 - THEIRS, 1.0, True, "1", None])
def test_it_cannot_make_a_question_of_the_gate_here_look_like_another(
    number: Any, rpc: list[str], tmp_path: Path, home: Path
) -> None:
    """Numbers of questions are easy to guess: an answer to what the node asks must not be one to what the gate asks."""
    told = {"id": number, "state": "waiting", "kind": "host", "host": "harmless.test", "text": "May it?"}
    command = node(rpc, tmp_path / "answer", "event", {"type": "ask", "ask": told}, 2)
    network = {"gate": "client", "ask": True, "ask_timeout": 600, "allowed_hosts": LOCAL}
    tried, over = [], Event()
    with Client({"network": network}, command=command) as sandbox:

        def decide(happened: dict[str, Any]) -> None:
            if happened["type"] == "ask" and happened["ask"]["host"] == "harmless.test":
                try:
                    sandbox.answer(happened["ask"]["id"], "sandbox")
                    tried.append("answered")
                except NotFound:
                    tried.append("not found")
            elif happened["type"] == "exec":
                over.set()

        sandbox.on_event(decide)
        sandbox.asks(watch=True)
        with sandbox.spawn("curl -sS http://harmful.test/") as curl:
            [asked] = until(lambda: sandbox.asks())
            assert (asked.id, asked.host) == (1, "harmful.test")
            sandbox.exec("echo SPEAK", check=True)
            assert over.wait(60)  # what the node said came before that
            assert tried == (["not found"] * 2 if number == 1 and type(number) is int else [])
            assert [(one.id, one.state) for one in sandbox.asks()] == [(1, "waiting")]
            sandbox.answer(asked.id, "deny")
            assert "harmful.test" in "".join(one.data.decode() for one in curl.chunks())


def test_it_cannot_make_its_client_start_threads_without_end(rpc: list[str], tmp_path: Path, home: Path) -> None:
    times, kept, go = 3000, tmp_path / "answers", Event()

    class Slow:
        def before_write(self, path: str, size: int) -> None:
            go.wait()

    asked = {"name": "before_write", "args": ["/file", 1]}
    before = active_count()
    with Client({}, hooks=Slow(), command=node(rpc, kept, "hook", asked, times)) as sandbox:
        sandbox.exec("echo SPEAK", check=True)
        until(lambda: kept.exists() and kept.read_bytes().count(b"\n") > 1000)
        most = active_count() - before
        go.set()
        until(lambda: kept.read_bytes().count(b"\n") == times)
    assert most < 1000
    answers = [json.loads(one)["result"] for one in kept.read_text().splitlines()]
    assert {} in answers and {"blocked": "too many hooks at a time"} in answers
