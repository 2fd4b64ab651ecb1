"""Running commands over HTTP."""

from __future__ import annotations

import base64
import json

from tests.patience import until
from tests.server.serving import Served


def test_a_commands_exit_code_and_both_outputs_are_the_answer(served: Served, box: str) -> None:
    answer = served.http.post(f"/v1/sandboxes/{box}/exec", json={"command": "echo out; echo err >&2; exit 3"})
    assert answer.status_code == 200
    said = answer.json()
    assert (said["exit_code"], said["stdout"], said["stderr"]) == (3, "out\n", "err\n")


def test_input_environment_and_directory_reach_the_command(served: Served, box: str) -> None:
    asked = {"command": "cat; echo $WORD; pwd", "stdin": "hello\n", "env": {"WORD": "there"}, "cwd": "/tmp"}
    assert served.http.post(f"/v1/sandboxes/{box}/exec", json=asked).json()["stdout"] == "hello\nthere\n/tmp\n"


def test_bytes_that_are_no_text_come_unchanged_as_base64(served: Served, box: str) -> None:
    asked = {"command": r"printf '\377\0\001'", "encoding": "base64"}
    said = served.http.post(f"/v1/sandboxes/{box}/exec", json=asked).json()
    assert base64.b64decode(said["stdout"]) == b"\xff\0\x01"


def test_output_is_streamed_as_events_and_the_exit_comes_last(served: Served, box: str) -> None:
    asked = {"command": ["sh", "-c", "echo one; read x < /dev/null; echo two >&2; exit 5"]}
    events = []
    with served.http.stream(
        "POST", f"/v1/sandboxes/{box}/exec", json=asked, headers={"Accept": "text/event-stream"}
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                events.append((name, json.loads(line[6:])))
    assert events[0] == ("stdout", {"text": "one\n"})
    assert ("stderr", {"text": "two\n"}) in events
    assert events[-1][0] == "exit" and events[-1][1]["exit_code"] == 5


def test_a_command_that_does_not_exist_is_the_clients_mistake(served: Served, box: str) -> None:
    answer = served.http.post(f"/v1/sandboxes/{box}/exec", json={"command": ["/no/such/program"]})
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == "command"


def test_a_client_that_leaves_kills_its_command(served: Served, box: str) -> None:
    with served.http.stream(
        "POST",
        f"/v1/sandboxes/{box}/exec",
        json={"command": "echo $$; sleep 1000"},
        headers={"Accept": "text/event-stream"},
    ) as answer:
        next(answer.iter_lines())

    def gone() -> bool:
        running = served.http.get(f"/v1/sandboxes/{box}/processes").json()["processes"]
        return not any("sleep 1000" in one["command"] for one in running)

    assert until(gone)


def test_a_sandbox_that_does_not_exist_is_404_and_an_ended_one_409(served: Served) -> None:
    assert served.http.post("/v1/sandboxes/vm-nothere/exec", json={"command": "true"}).status_code == 404
    ended = served.create()
    assert served.http.delete(f"/v1/sandboxes/{ended}").status_code == 200
    assert served.http.post(f"/v1/sandboxes/{ended}/exec", json={"command": "true"}).status_code == 409


def test_an_unknown_field_is_named(served: Served, box: str) -> None:
    answer = served.http.post(f"/v1/sandboxes/{box}/exec", json={"command": "true", "comand": 1})
    assert answer.status_code == 400
    assert "comand" in answer.text
