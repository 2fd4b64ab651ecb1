"""Sandbox, AsyncSandbox and Client are one protocol: the same names, parameters, defaults and results."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from sandbox import AsyncProcess, AsyncSandbox, Client, Process, Sandbox
from sandbox.guest.process import Process as LocalProcess
from sandbox.rpc.remote import RemoteProcess
from sandbox.shared_process import SharedProcessView

#: The protocol; what a class has beside it is its own (`ITS_OWN`).
METHODS = [
    "answer", "apply", "apply_patch", "asks", "browser", "changes", "checkpoint", "chmod", "close", "connect",
    "dial", "discard", "download", "edit", "exec", "exec_stream", "exists", "extend", "fork",
    "glob", "grep", "list_files",
    "mkdir", "on_event", "pause", "processes", "python", "read_file", "read_link", "read_text", "remove", "rename",
    "restore", "resume", "session", "spawn", "stat", "stats", "symlink", "tree", "update_network", "upload",
    "write_file", "write_text",
]  # fmt: skip
PROPERTIES = ["desktop", "directory", "engine", "environment", "id", "ports"]
ITS_OWN: dict[type, set[str]] = {
    Sandbox: {"attach", "log", "remote"},  # and the attributes config, record and notices
    AsyncSandbox: {"start", "sync"},
    Client: {"env"},
}
PROCESS = ["chunks", "close", "close_stdin", "kill", "read", "resize", "signal", "wait", "write"]


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("kind", [Sandbox, AsyncSandbox, Client])
def test_it_has_the_protocol_and_no_more(kind: type) -> None:
    set_by_init = {"directory", "engine", "environment", "id"}
    missing = {*METHODS, *PROPERTIES} - public(kind)
    assert missing <= set_by_init
    assert public(kind) - {*METHODS, *PROPERTIES} == ITS_OWN[kind]


def parameters(function: Any) -> list[tuple[str, Any, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default, one.annotation) for one in found]


@pytest.mark.parametrize("name", METHODS)
def test_its_parameters_and_result_are_the_same(name: str) -> None:
    plain, remote, waited = (getattr(kind, name) for kind in (Sandbox, Client, AsyncSandbox))
    if name == "connect":  # of the class it is a server's sandbox: see `connecting.py`
        plain = Sandbox._join
    assert parameters(plain) == parameters(remote) == parameters(waited)
    asynchronous = {
        "CodeSession": "AsyncCodeSession",
        "Process": "AsyncProcess",
        "Iterator[Chunk | ExecResult]": "AsyncIterator[Chunk | ExecResult]",
    }
    result = inspect.signature(plain).return_annotation
    assert inspect.signature(remote).return_annotation in (result, f"Remote{result}")
    assert inspect.signature(waited).return_annotation == asynchronous.get(result, result)


@pytest.mark.parametrize("kind", [LocalProcess, SharedProcessView, RemoteProcess, AsyncProcess])
@pytest.mark.parametrize("name", PROCESS)
def test_a_process_is_the_same_everywhere(kind: type, name: str) -> None:
    wanted = parameters(getattr(Process, name))
    assert parameters(getattr(kind, name)) == wanted


def test_a_process_has_nothing_else() -> None:
    assert public(Process) == {*PROCESS, "pid", "result", "tty"}
    assert public(AsyncProcess) == {*PROCESS, "pid", "result"}
