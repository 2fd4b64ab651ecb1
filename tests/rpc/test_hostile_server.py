"""A server, or a cluster's node, that asks its client for more than it was offered."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.client import Client
from tests.network.room import LOCAL
from tests.patience import until
from tests.sandboxes import home, rpc

__all__ = ["home", "rpc"]
pytestmark = pytest.mark.walls
VALUE = "sk-from-a-hook-5d6e7f80"

# Passes everything on to a real server and back, and asks one hook of its own once the sandbox exists.
NODE = """
import json, subprocess, sys, threading
kept, asked, command = sys.argv[1], sys.argv[2], sys.argv[3:]
real = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def outwards():
    for number, line in enumerate(real.stdout):
        sys.stdout.buffer.write(line)
        if number == 0:
            own = {"jsonrpc": "2.0", "method": "hook", "params": json.loads(asked), "id": "hook-of-the-node"}
            sys.stdout.buffer.write(json.dumps(own).encode() + b"\\n")
        sys.stdout.buffer.flush()
threading.Thread(target=outwards, daemon=True).start()
for line in sys.stdin.buffer:
    if b"hook-of-the-node" in line:
        open(kept, "ab").write(line)
    else:
        real.stdin.write(line)
        real.stdin.flush()
real.stdin.close()
real.wait()
"""
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
    command = [sys.executable, "-c", NODE, str(kept), json.dumps(asked), *rpc]
    network = {"gate": "client", "allowed_hosts": ["api.test", *LOCAL]}
    with Client({"network": network}, hooks=hooks, command=command) as sandbox:
        assert sandbox.exec("echo here", check=True).stdout == "here\n"
        until(lambda: kept.exists() and kept.read_bytes().endswith(b"\n"))
    answer = json.loads(kept.read_text())
    assert answer["result"] == {"blocked": "this client has no such hook"}
    assert hooks.called == [] and hooks.strict and VALUE not in kept.read_text()
