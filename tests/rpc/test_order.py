"""Requests of one connection take effect in the order in which they were sent, and `close` after all of them."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.rpc import errors
from tests.rpc.raw import Raw, serving

pytestmark = pytest.mark.walls

needs_fuse = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")


@pytest.fixture
def made(rpc: list[str]) -> Iterator[Raw]:
    with serving(rpc) as server:
        assert server.ask("create")["result"]["id"]
        yield server


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def request(method: str, id: int | str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params, "id": id}


def answers(raw: Raw, count: int) -> dict[Any, dict[str, Any]]:
    return {answer["id"]: answer for answer in (raw.receive() for _ in range(count))}


def test_a_file_is_read_as_it_was_written_before_the_request_was_sent(made: Raw) -> None:
    for number in range(100):
        made.send(request("write_file", f"write-{number}", path="/tmp/f", content=b64(f"{number}\n")))
        made.send(request("read_file", f"read-{number}", path="/tmp/f"))
    heard = answers(made, 200)
    assert [heard[f"read-{number}"]["result"]["content"] for number in range(100)] == [
        b64(f"{number}\n") for number in range(100)
    ]


def test_files_directories_and_commands_keep_their_order(made: Raw) -> None:
    for number in range(30):
        made.send(request("mkdir", f"a{number}", path=f"/tmp/d{number}"))
        script = f"#!/bin/sh\necho {number}\n"
        made.send(request("write_file", f"b{number}", path=f"/tmp/d{number}/run", content=b64(script), mode=0o755))
        made.send(request("exec", f"c{number}", command=["./run"], working_dir=f"/tmp/d{number}"))
        made.send(request("rename", f"d{number}", old=f"/tmp/d{number}", new=f"/tmp/e{number}"))
    heard = answers(made, 120)
    assert all("result" in answer for answer in heard.values()), heard
    assert all(heard[f"a{number}"]["result"] == {} for number in range(30))
    assert [heard[f"c{number}"]["result"]["exit_code"] for number in range(30)] == [0] * 30


def test_a_command_that_runs_blocks_nobody_else(made: Raw) -> None:
    made.send(request("exec", "long", command="until [ -e /tmp/go ]; do sleep 0.01; done; echo went"))
    made.send(request("write_file", "go", path="/tmp/go", content=""))
    assert answers(made, 2)["long"]["result"]["stdout"] == b64("went\n")


def test_a_file_operation_that_hangs_can_be_cancelled_and_then_blocks_nobody_else(made: Raw) -> None:
    made.ask("exec", command="mkfifo /tmp/fifo")
    made.send(request("read_file", "hangs", path="/tmp/fifo", offset=0, length=1))
    made.send(request("cancel", "cancel", request="hangs"))
    made.send(request("exec", "next", command="echo on"))
    while (answer := made.receive())["id"] != "next":
        pass
    assert answer["result"]["stdout"] == b64("on\n")


def test_close_ends_the_sandbox_after_what_was_sent_before_it_was_answered(made: Raw) -> None:
    made.send(request("exec", "work", command="until [ -e /tmp/done ]; do sleep 0.01; done; echo finished"))
    made.send(request("write_file", "done", path="/tmp/done", content=""))
    made.send(request("close", "close"))
    heard = [made.receive() for _ in range(3)]
    assert heard[-1] == {"jsonrpc": "2.0", "result": {}, "id": "close"}
    assert {answer["id"]: answer["result"] for answer in heard}["work"]["stdout"] == b64("finished\n")
    assert made.wait() == 0


def test_close_waits_no_longer_than_its_grace_and_says_what_it_ended(made: Raw) -> None:
    made.send(request("exec_pipe", "forever", command="cat"))
    assert "pid" in made.receive()["result"]
    made.send(request("close", "close", grace=0.1))
    made.send(request("exec", "late", command="true"))
    heard = answers(made, 3)
    assert heard["late"]["error"]["code"] == errors.CLOSED
    assert "error" in heard["forever"] or heard["forever"]["result"].get("signal")
    assert heard["close"]["result"] == {}
    assert made.wait() == 0


def test_what_a_running_request_needs_is_read_while_close_waits(made: Raw) -> None:
    made.send(request("exec_pipe", "cat", command="cat"))
    assert "pid" in made.receive()["result"]
    made.send(request("close", "close", grace=600))
    made.send({"jsonrpc": "2.0", "method": "input", "params": {"request": "cat", "data": b64("last"), "end": True}})
    heard = [made.receive() for _ in range(3)]
    assert {"stdout": b64("last")} in [answer["result"] for answer in heard]
    assert heard[-1]["id"] == "close"


def test_the_grace_of_close_holds_when_stdin_has_ended_behind_it(made: Raw) -> None:
    made.send(request("exec", "work", command="until [ -e go ]; do sleep 0.01; done; echo finished"))
    made.send(request("close", "close", grace=600))
    assert made.server.stdin is not None
    made.server.stdin.close()
    # Five seconds are what the end of stdin alone gives; the command is let go by the project's file.
    with open("go", "w"):
        pass
    assert answers(made, 2)["work"]["result"]["stdout"] == b64("finished\n")


@needs_fuse
def test_a_hook_may_itself_ask_the_sandbox(rpc: list[str]) -> None:
    with serving(rpc) as raw:
        raw.ask("create", hooks={"before_write": {}}, vfs={"mounts": {"/w": {"type": "memory"}}})
        raw.send(request("write_file", "write", path="/w/f", content=b64("x")))
        raw.send(request("exec", "behind", command="cat /w/f"))
        hook = raw.receive()
        assert hook["method"] == "hook"
        raw.send(request("exec", "from the hook", command="echo heard"))
        assert raw.receive()["id"] == "from the hook"
        raw.send({"jsonrpc": "2.0", "id": hook["id"], "result": {}})
        assert answers(raw, 2)["behind"]["result"]["stdout"] == b64("x")


def test_a_terminals_new_size_is_there_before_input_that_was_sent_after_it(made: Raw) -> None:
    for number in range(5):
        tty = f"tty-{number}"
        made.send(request("exec_tty", tty, command="stty size; read line; stty size", rows=10, cols=20))
        said = b""
        while b"10 20" not in said:
            said += base64.b64decode(made.receive().get("result", {}).get("stdout", ""))
        made.send(request("read_file", f"before-{number}", path="/etc/passwd"))  # the new size waits for its turn
        made.send(request("resize", f"size-{number}", request=tty, rows=30, cols=40))
        made.send(request("input", f"input-{number}", request=tty, data=b64("\n")))
        while "exit_code" not in (result := made.receive().get("result", {})):
            said += base64.b64decode(result.get("stdout", ""))
        assert b"30 40" in said, said
