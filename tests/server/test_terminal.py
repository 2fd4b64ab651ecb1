"""Commands and terminals over WebSockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sandbox.websocket import WebSocketClient
from tests.server.serving import Served


class Talk:
    """What is said on one WebSocket: frames of bytes, and JSON."""

    def __init__(self, line: WebSocketClient) -> None:
        self.line = line
        self.output = b""
        self.said: list[dict[str, Any]] = []

    def tell(self, **what: Any) -> None:
        self.line.send_text(json.dumps(what))

    def hear(self) -> bool:
        piece = self.line.receive_message()
        if isinstance(piece, str):
            self.said.append(json.loads(piece))
        else:
            self.output += piece
        return piece != b""

    def until(self, text: bytes) -> None:
        while text not in self.output:
            assert self.hear(), (self.output, self.said)

    def end(self) -> dict[str, Any]:
        while self.hear():
            pass
        return self.said[-1]


@contextmanager
def talking(served: Served, box: str, kind: str, **start: Any) -> Iterator[Talk]:
    url = f"{served.address}/v1/sandboxes/{box}/{kind}"
    line = WebSocketClient(url, {"Authorization": f"Bearer {served.token}"})
    line._line.settimeout(60)  # a server that says nothing more fails the test
    talk = Talk(line)
    talk.tell(**start)
    try:
        yield talk
    finally:
        line.close()
        line.free()


def test_a_shell_on_a_terminal_answers_and_its_size_changes(served: Served, box: str) -> None:
    command = "trap 'stty size' WINCH; stty size; while ! read -r line; do :; done; exit $line"
    with talking(served, box, "terminal", command=command, rows=10, cols=20) as talk:
        talk.until(b"10 20")
        talk.tell(resize={"rows": 33, "cols": 44})
        talk.until(b"33 44")
        talk.line.send(b"7\n")
        assert talk.end()["exit"]["exit_code"] == 7
    assert talk.said[0]["started"]["pid"] > 0


def test_pipes_have_two_streams_and_input_that_ends(served: Served, box: str) -> None:
    with talking(served, box, "exec", command="cat; echo err >&2; exit 3") as talk:
        talk.line.send(b"hello")
        talk.until(b"\x01hello")
        talk.tell(stdin_end=True)
        assert talk.end()["exit"]["exit_code"] == 3
        assert b"\x02err\n" in talk.output


def test_a_signal_reaches_the_command(served: Served, box: str) -> None:
    with talking(
        served, box, "exec", command="trap 'echo got; exit 9' TERM; echo up; while :; do sleep 0.05; done"
    ) as talk:
        talk.until(b"up")
        talk.tell(signal="TERM")
        assert talk.end()["exit"]["exit_code"] == 9


def test_leaving_ends_the_command_and_a_kept_one_continues(served: Served, box: str) -> None:
    def running(word: str) -> bool:
        found = served.http.get(f"/v1/sandboxes/{box}/processes").json()["processes"]
        return any(word in one["command"] for one in found)

    with talking(served, box, "terminal", command="echo one; sleep 1001") as talk:
        talk.until(b"one")
    with talking(served, box, "terminal", command="echo two; sleep 1002", keep="kept") as talk:
        talk.until(b"two")
    while running("sleep 1001"):
        pass
    assert running("sleep 1002")
    with talking(served, box, "terminal", command="never run", keep="kept") as talk:
        talk.until(b"two")  # what it printed last
        talk.line.send(b"\x03")
        assert "exit" in talk.end()


def test_an_invalid_message_is_reported_and_ends_it(served: Served, box: str) -> None:
    for start, word in (({"comand": 1}, "comand"), ({}, "needs a command"), ({"command": ["/no/such"]}, "no/such")):
        with talking(served, box, "exec", **start) as talk:
            assert word in talk.end()["error"]["message"]
    with talking(served, box, "exec", command="cat") as talk:
        talk.tell(signal="NOPE")
        assert "NOPE" in talk.end()["error"]["message"]
