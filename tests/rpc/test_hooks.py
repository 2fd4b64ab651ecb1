"""Hooks that live in the client: the sandbox asks, the client decides, and silence refuses."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.client import Client
from sandbox.rpc import errors
from tests.rpc.raw import Raw, serving

pytestmark = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse")

MOUNTS = {"mounts": {"/workspace": {"type": "memory"}}}


@pytest.fixture
def raw(rpc: list[str]) -> Iterator[Raw]:
    with serving(rpc) as server:
        yield server


def write(raw: Raw, path: str, answer: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Writes a file and gives every hook the same answer; returns the hooks' calls, and how the writing ended."""
    content = base64.b64encode(b"four").decode()
    raw.send({"jsonrpc": "2.0", "method": "write_file", "params": {"path": path, "content": content}, "id": "write"})
    calls = []
    while (message := raw.receive()).get("id") != "write":
        assert message["method"] == "hook"
        calls.append(message["params"])
        raw.send({"jsonrpc": "2.0", "id": message["id"], **answer})
    return calls, message


def test_a_file_hook_is_asked_with_its_arguments(raw: Raw) -> None:
    raw.ask("create", hooks={"after_write": {}}, vfs=MOUNTS)
    calls, ended = write(raw, "/workspace/note", {"result": {}})
    assert calls == [{"name": "after_write", "args": ["/workspace/note", 4]}]
    assert ended["result"] == {}


def test_a_hook_that_blocks_refuses_the_operation(raw: Raw) -> None:
    raw.ask("create", hooks={"before_write": {}}, vfs=MOUNTS)
    _, ended = write(raw, "/workspace/note", {"result": {"blocked": "not today"}})
    assert ended["error"]["code"] == errors.FILE
    assert ended["error"]["data"]["name"] == "EACCES"


@pytest.mark.parametrize(
    "answer",
    [{"error": {"code": -1, "message": "the hook has a bug"}}, {"result": {"blocked": 5}}, {"result": "yes"}],
    ids=["an error", "a wrong type", "no object"],
)
def test_anything_unclear_refuses(raw: Raw, answer: dict[str, Any]) -> None:
    raw.ask("create", hooks={"before_write": {}}, vfs=MOUNTS)
    _, ended = write(raw, "/workspace/note", answer)
    assert ended["error"]["code"] == errors.FILE


def test_the_python_client_takes_the_hooks_that_a_sandbox_takes(rpc: list[str]) -> None:
    class Hooks:
        def __init__(self) -> None:
            self.wrote: list[tuple[str, int]] = []

        def before_open(self, path: str, flags: int) -> None:
            if path.endswith("secret"):
                raise PermissionError("not that one")

        def after_write(self, path: str, size: int) -> None:
            self.wrote.append((path, size))

    hooks = Hooks()
    with Client({"vfs": MOUNTS}, hooks=hooks, command=rpc) as client:
        client.write_file("/workspace/note", "four")
        assert hooks.wrote == [("/workspace/note", 4)]
        assert client.exec("touch /workspace/other && cat /workspace/secret").exit_code != 0


@pytest.mark.parametrize(
    ("hooks", "named"),
    [
        ({"before_opn": {}}, "did you mean 'before_open'"),
        ({"on_requst": {}}, "did you mean 'on_request'"),
        ({"on_everything": {}}, "on_everything"),
        ({"on_request": True}, "hooks.on_request"),
        ({"on_request": {"bdy": True}}, "hooks.on_request"),
        (["on_request"], "hooks must be an object"),
        ("on_request", "hooks must be an object"),
    ],
)
def test_a_hook_that_would_never_be_called_is_an_error_that_names_it(raw: Raw, hooks: object, named: str) -> None:
    error = raw.ask("create", hooks=hooks)["error"]
    assert error["code"] in (errors.CONFIG, errors.INVALID_PARAMS)
    assert named in error["message"]
    assert raw.ask("create")["result"]["id"], "nothing was created before"


@pytest.mark.parametrize("answer", [{"blokced": "no"}, {"request": {}}, None, True, [], {"blocked": 1}])
def test_an_answer_that_is_not_clear_refuses(raw: Raw, answer: object) -> None:
    assert "id" in raw.ask("create", vfs=MOUNTS, hooks={"before_create": {}})["result"]
    _, ended = write(raw, "/workspace/note", {"result": answer})
    assert ended["error"]["code"] == errors.FILE
