"""What a program inside can try against whoever looks at its desktop from outside."""

from __future__ import annotations

import json
import os
from threading import Event, Thread

import pytest

from sandbox import Sandbox
from sandbox.desktop import programs, x11
from sandbox.desktop.cdp import MOST_SESSIONS, Cdp
from sandbox.errors import SandboxError
from tests.desktop.desks import until

pytestmark = pytest.mark.walls

# A display of the tenant's own making: says that it is ready, greets as X does, then answers with what it was given.
FAKE = """#!/usr/bin/python3
import os, socket, struct, sys
os.makedirs("/tmp/.X11-unix", exist_ok=True)
line = socket.socket(socket.AF_UNIX)
line.bind("/tmp/.X11-unix/X0")
line.listen()
print(0, flush=True)
setup = struct.pack("<IIIIHHBBBBBBBB4x", 0, 0, 0, 0, 0, 65535, 1, 0, 0, 0, 32, 0, 8, 9)
setup += struct.pack("<I16xHH8xIxxBB", 7, 800, 600, 33, 24, 1) + struct.pack("<BxHxxxx", 24, 1)
setup += struct.pack("<IBBHIII4x", 33, 4, 8, 256, 0xFF0000, 0xFF00, 0xFF)
one, _ = line.accept()
one.recv(4096)
one.sendall(struct.pack("<BxHHH", 1, 11, 0, len(setup) // 4) + setup)
number = 0
while data := one.recv(4):
    opcode, _, words = struct.unpack("<BBH", data)
    rest = one.recv(4 * words - 4) if words > 1 else b""
    number += 1
    head = struct.pack("<BBHI", 1, 1, number, 0)
    if opcode == 101:
        one.sendall(struct.pack("<BBHI", 1, 1, number, 2) + bytes(24) + struct.pack("<II", 0xFFE1, 97))
    elif opcode == 14:
        one.sendall(head + struct.pack("<IhhHH12x", 7, 0, 0, SIZE, SIZE))
    elif opcode == 73:
        one.sendall(struct.pack("<BBHI", 1, 24, number, 2**30) + bytes(24) + bytes(2**20))
    else:
        one.sendall(head + bytes(24))
"""


def replaced(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """The sandbox's display server is a program of the tenant's, as it can be in an image that it may write to."""
    sandbox.write_file("/tmp/Xvfb", script, 0o755)
    monkeypatch.setattr(programs, "find", lambda _: {"Xvfb": "/tmp/Xvfb"})


def test_a_screen_that_says_it_is_huge_is_not_pictured(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(sandbox, monkeypatch, FAKE.replace("SIZE", "32000"))
    with pytest.raises(SandboxError, match="too large"):
        sandbox.desktop.screenshot()


def test_a_picture_of_another_size_than_asked_for_is_not_read(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(sandbox, monkeypatch, FAKE.replace("SIZE", "100"))
    with pytest.raises(SandboxError, match="something else"):
        sandbox.desktop.screenshot()


@pytest.mark.parametrize("says", ["head -c 100000000 /dev/zero", "echo 12345678", "echo x", "true", "yes"])
def test_a_display_server_that_says_nonsense_is_an_error(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    replaced(sandbox, monkeypatch, f"#!/bin/sh\n{says}\n")
    with pytest.raises(SandboxError, match="did not start"):
        sandbox.desktop.screenshot()


def test_a_display_that_is_stopped_holds_the_caller_only_so_long(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.desktop.start()
    monkeypatch.setattr(x11, "PATIENCE", 0.3)
    sandbox.exec("for p in /proc/[0-9]*; do case $(readlink $p/exe) in */X*) kill -STOP ${p#/proc/};; esac; done")
    with pytest.raises(SandboxError, match="in time"):
        sandbox.desktop.screenshot()


@pytest.mark.parametrize("trap", ["ln -s /etc /tmp/.desktop", "touch /tmp/.desktop", "ln -s /nowhere /tmp/.desktop"])
def test_something_else_in_the_place_of_our_directory_is_a_sandbox_error(sandbox: Sandbox, trap: str) -> None:
    sandbox.exec(trap, check=True)
    with pytest.raises(SandboxError):
        sandbox.desktop.screenshot()


def test_a_title_with_escape_sequences_and_markup_is_plain_text(sandbox: Sandbox) -> None:
    sandbox.desktop.start()
    sandbox.spawn(["xterm", "-T", "\x1b]0;owned\x07<script>\u202e\u200b", "-e", "cat"], keep="x")
    until(lambda: sandbox.desktop.windows())
    (window,) = sandbox.desktop.windows()
    assert "<script>" in window.title and window.title.isprintable()


# -- the browser


class Pipe:
    """A browser that says what the test has it say."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.heard: list[dict[str, object]] = []
        self.closed = False

    def say(self, data: bytes) -> None:
        os.write(self._write, data)

    def say_all(self, data: bytes) -> None:
        """The same, of more than a pipe holds."""
        left = memoryview(data)
        while left:
            left = left[os.write(self._write, left) :]

    def opened(self, parent: str, session: str) -> None:
        said = {"method": "Target.attachedToTarget", "params": {"sessionId": session}, "sessionId": parent}
        self.say(json.dumps(said).encode() + b"\0")

    def write_within(self, data: bytes, timeout: float | None) -> None:
        message = json.loads(data[:-1])
        self.heard.append(message)
        if message["method"] == "Target.attachToBrowserTarget":
            answer = {"id": message["id"], "result": {"sessionId": f"session-{message['id']}"}}
            self.say(json.dumps(answer).encode() + b"\0")

    def read(self, size: int) -> bytes:
        return os.read(self._read, size)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._write)


def test_a_client_cannot_speak_in_anothers_session_nor_hear_it() -> None:
    pipe = Pipe()
    cdp = Cdp(pipe, lambda: None)  # type: ignore[arg-type]
    first_heard: list[str] = []
    told = Event()
    first = cdp.attach(first_heard.append, lambda: None)
    second = cdp.attach(lambda text: told.set(), lambda: None)
    with pytest.raises(SandboxError, match="belongs to another client"):
        second.send(json.dumps({"id": 1, "method": "Page.navigate", "sessionId": first.session}))
    for nonsense in ("", "[]", "{}", "1", '{"method": 1', "[" * 100000):
        with pytest.raises(SandboxError, match="not a message"):
            second.send(nonsense)
    pipe.say(json.dumps({"method": "Page.loaded", "sessionId": second.session}).encode() + b"\0")
    assert told.wait(60) and first_heard == []
    pipe.close()


@pytest.mark.parametrize(
    "said",
    [
        *(b"nonsense\0", b"[1]\0", b"[" * 100000 + b"\0", b'{"id": []}\0', b'{"id": {}, "sessionId": 1}\0'),
        *(b'{"params":' + b"[" * 100000 + b"\0", b'{"id": 1.5}\0', b'{"sessionId": "\xff"}\0'),
    ],
)
def test_a_browser_that_says_nonsense_is_ended(said: bytes) -> None:
    pipe, over = Pipe(), Event()
    Cdp(pipe, over.set)  # type: ignore[arg-type]
    pipe.say(said)
    assert over.wait(60) and pipe.closed


def test_a_browser_of_many_small_values_costs_the_host_no_more_than_their_text() -> None:
    """A list of 8 million empty lists has 24 MB as text, and half a gigabyte as Python's objects."""
    import tracemalloc

    pipe, heard, over = Pipe(), Event(), Event()
    cdp = Cdp(pipe, over.set)  # type: ignore[arg-type]
    told: list[int] = []

    def tell(text: str) -> None:
        told.append(len(text))
        heard.set()

    client = cdp.attach(tell, lambda: None)
    text = b'{"method":"x","params":{"all":[' + b"[]," * 2_000_000 + b'[]]},"sessionId":"%s"}\0'
    tracemalloc.start()
    try:
        Thread(target=pipe.say_all, args=(text.replace(b"%s", client.session.encode()),), daemon=True).start()
        assert heard.wait(60)
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
    finally:
        tracemalloc.stop()
    assert told[0] > 6_000_000
    pipe.close()


def test_a_browser_that_opens_sessions_without_end_fills_no_table() -> None:
    pipe, told = Pipe(), Event()
    cdp = Cdp(pipe, lambda: None)  # type: ignore[arg-type]
    client = cdp.attach(lambda text: told.set() if '"last"' in text else None, lambda: None)
    for number in range(MOST_SESSIONS + 10):
        pipe.opened(client.session, f"s{number}")
    pipe.opened(client.session, "last")
    assert told.wait(30)
    assert len(cdp._owners) == MOST_SESSIONS
    pipe.close()


def test_a_browser_that_does_not_answer_us_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.desktop.cdp.PATIENCE", 0.2)
    pipe, over = Pipe(), Event()
    cdp = Cdp(pipe, over.set)  # type: ignore[arg-type]
    with pytest.raises(SandboxError, match="does not answer"):
        cdp.call("Browser.getVersion")
    assert over.wait(60) and pipe.closed


def test_a_stopped_browser_blocks_nobody_for_long_and_the_next_use_starts_it_again(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.config.browser.headless = True
    client = sandbox._browser.attach(lambda text: None, lambda: None)
    stop = "for p in /proc/[0-9]*; do case $(readlink $p/exe) in */chromium) kill -STOP ${p#/proc/};; esac; done"
    sandbox.exec(stop)
    monkeypatch.setattr("sandbox.desktop.cdp.PATIENCE", 0.5)
    more = json.dumps({"id": 1, "method": "Runtime.evaluate", "params": {"expression": "x" * 2**20}})
    problems: list[str] = []

    def send() -> None:
        try:
            client.send(more)
        except SandboxError as problem:
            problems.append(str(problem))

    threads = [Thread(target=send, daemon=True) for _ in range(4)]  # each of them is more than a pipe holds
    for one in threads:
        one.start()
    for one in threads:
        one.join(30)
    assert len(problems) == 4 and any("does not read" in one for one in problems)
    monkeypatch.undo()
    assert sandbox._browser.version()["Browser"].startswith("Chrome/")
