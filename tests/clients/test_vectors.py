"""The Python client plays the shared vectors (`clients/vectors/`)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox import CommandError, ConfigError, InvalidArgument
from sandbox.client import Client
from sandbox.result import Chunk, ExecResult
from sandbox.rpc import errors
from sandbox.rpc.errors import RpcError
from tests.clients.places import VECTORS

SCENARIOS = [
    pytest.param(scenario, id=f"{file.stem}: {scenario['name']}")
    for file in sorted(VECTORS.glob("*.json"))
    for scenario in json.loads(file.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_client_does_what_the_vectors_say(scenario: dict[str, Any], rpc: list[str], tmp_path: Path) -> None:
    with _expecting(scenario.get("error")), Client(scenario.get("config"), command=rpc) as client:
        for step in scenario["steps"]:
            with _expecting(step.get("error")):
                got = play(client, step)
                for key, value in step.get("result", {}).items():
                    if key == "stdout_has":
                        assert value in got["stdout"], step
                    else:
                        assert got[key] == value, step


def play(client: Client, step: dict[str, Any]) -> dict[str, Any]:
    args = dict(step["args"])
    match step["call"]:
        case "exec":
            return _plain(client.exec(args.pop("command"), args.pop("working_dir", None), **args))
        case "exec_stream":
            *chunks, result = client.exec_stream(args["command"])
            assert isinstance(result, ExecResult)
            for chunk in chunks:
                assert isinstance(chunk, Chunk)
                setattr(result, f"{chunk.stream}_bytes", getattr(result, f"{chunk.stream}_bytes") + chunk.data)
            return _plain(result)
        case "spawn":
            return _spawn(client, step)
        case "write_file":
            content = args.get("text") or base64.b64decode(args.get("base64", ""))
            client.write_file(args["path"], content, args.get("mode", 0o644))
        case "read_file":
            content = client.read_file(args["path"])
            text = content.decode(errors="replace")
            return {"text": text, "base64": base64.b64encode(content).decode(), "size": len(content)}
        case "list_files":
            return {"names": sorted(file["name"] for file in client.list_files(args["path"]))}
        case "stat":
            return dict(client.stat(args["path"]))
        case other:
            getattr(client, other)(**args)
    return {}


def _spawn(client: Client, step: dict[str, Any]) -> dict[str, Any]:
    args, tty = step["args"], step["args"].get("tty")
    with client.spawn(args["command"], pty=(tty["rows"], tty["cols"]) if tty else None) as process:
        for piece in step.get("input", []):
            process.write(piece.encode())
        if not tty and "input" in step:
            process.close_stdin()
        first = b""
        if "signal" in step:
            first = next(process.chunks()).data
            process.signal(step["signal"])
        result = process.wait()
        result.stdout_bytes = first + result.stdout_bytes
        return _plain(result)


def _plain(result: ExecResult) -> dict[str, Any]:
    names = ("exit_code", "stdout", "stderr", "signal", "timed_out", "truncated")
    return {name: getattr(result, name) for name in names}


@contextmanager
def _expecting(error: dict[str, Any] | None) -> Iterator[None]:
    if error is None:
        yield
        return
    with pytest.raises((RpcError, CommandError, ConfigError, InvalidArgument, OSError)) as caught:
        yield
    problem = errors.to_fault(caught.value)
    if isinstance(caught.value, RpcError):
        problem = errors.Fault(caught.value.code, str(caught.value), data=caught.value.data)
    assert problem.code == error["code"]
    if "name" in error:
        assert problem.data is not None and problem.data["name"] == error["name"]
