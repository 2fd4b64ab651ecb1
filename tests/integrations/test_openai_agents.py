"""OpenAI Agents SDK: sessions and tools, driven by the SDK itself against a stand-in for the API."""

from __future__ import annotations

import asyncio
import io
import json
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, ApplyPatchTool, ComputerTool, OpenAIResponsesModel, RunConfig, Runner, ShellTool
from agents.sandbox import Manifest, SandboxAgent, SandboxPathGrant, SandboxRunConfig
from agents.sandbox.entries import File
from agents.sandbox.errors import (
    ExecTimeoutError,
    InvalidManifestPathError,
    LocalFileReadError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.session import SandboxSession
from agents.sandbox.snapshot import LocalSnapshotSpec
from openai import AsyncOpenAI

from sandbox import Sandbox
from sandbox.integrations.openai_client import AgentSandboxClient, AgentSandboxClientOptions
from sandbox.integrations.openai_session import own_directory
from sandbox.integrations.openai_tools import SandboxComputer, SandboxEditor, SandboxShell, python_tool
from sandbox.registry.registry import entries
from tests.integrations.openai_api import Api, Item, Model, api, call, outputs, shell, text
from tests.sandboxes import home

__all__ = ["home"]
pytestmark = [pytest.mark.integrations, pytest.mark.anyio]


@pytest.fixture(autouse=True)
def _place(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    (tmp_path / "secret").write_text("s3cret")


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[SandboxSession]:
    client = AgentSandboxClient()
    made = await client.create(manifest=Manifest(entries={"a.txt": File(content=b"hello")}))
    async with made:
        yield made
    await client.delete(made)
    assert not os.path.exists(own_directory(made.state))


def model_at(server: Api) -> OpenAIResponsesModel:
    return OpenAIResponsesModel("gpt-test", AsyncOpenAI(base_url=server.url, api_key="not-a-key"))


def one_after_another(*items: Item) -> Model:
    def model(request: Item) -> list[Item]:
        told = len(outputs(request))
        return [items[told] if told < len(items) else text("done")]

    return model


async def run(agent_of: Any, model: Model, **config: Any) -> list[Any]:
    """Runs an agent to its end; what the model was told by the tools."""
    with api(model) as server:
        result = await Runner.run(agent_of(model_at(server)), "go", run_config=RunConfig(**config))
        assert result.final_output == "done"
        return server.outputs


# -- an agent in a sandbox


async def test_an_agent_sees_its_workspace_and_nothing_of_the_host(home: Path, tmp_path: Path) -> None:
    told = await run(
        lambda model: SandboxAgent(
            name="a", model=model, default_manifest=Manifest(entries={"a.txt": File(content=b"hello")})
        ),
        one_after_another(
            call("exec_command", cmd="cat a.txt && echo new > b.txt && cat b.txt"),
            call("exec_command", cmd=f"cat {tmp_path / 'secret'}"),
            call("exec_command", cmd="curl -sS http://refused.example/"),
            call("view_image", path=str(tmp_path / "secret")),
        ),
        sandbox=SandboxRunConfig(client=AgentSandboxClient()),
    )
    assert "hello" in told[0] and "new" in told[0]
    assert "No such file" in told[1] and "refused.example:80 is not allowed" in told[2]
    assert "s3cret" not in str(told)
    assert [one.id for one in entries(str(home)) if one.running] == []


async def test_an_agent_works_on_a_directory_of_yours(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    client = AgentSandboxClient({"filesystem": {"root": str(tmp_path / "mine")}})
    await run(
        lambda model: SandboxAgent(name="a", model=model),
        one_after_another(call("exec_command", cmd="echo kept > file")),
        sandbox=SandboxRunConfig(client=client),
    )
    assert (tmp_path / "mine" / "file").read_text() == "kept\n"


async def test_a_run_that_is_cancelled_leaves_nothing(home: Path) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def model(request: Item) -> list[Item]:
        if outputs(request):
            loop.call_soon_threadsafe(began.set)
        return [call("exec_command", cmd="sleep 1000", yield_time_ms=30_000 if outputs(request) else 250)]

    with api(model) as server:
        agent = SandboxAgent(name="a", model=model_at(server))
        config = RunConfig(sandbox=SandboxRunConfig(client=AgentSandboxClient()))
        task = asyncio.create_task(Runner.run(agent, "go", run_config=config))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [one.id for one in entries(str(home)) if one.running] == []


# -- a session by itself


async def test_a_command_that_takes_too_long_is_killed(session: SandboxSession) -> None:
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep 1000", timeout=1)
    assert b"sleep" not in (await session.exec("cat /proc/[0-9]*/comm")).stdout


async def test_a_cancelled_command_is_killed(session: SandboxSession) -> None:
    task = asyncio.create_task(session.exec("echo > began; exec sleep 1000"))
    while not (await session.exec("test -e began")).ok():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert b"sleep" not in (await session.exec("cat /proc/[0-9]*/comm")).stdout


async def test_files_outside_the_workspace_are_refused_also_by_a_link(session: SandboxSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidManifestPathError):
        await session.read(tmp_path / "secret")
    await session.exec("ln -s /etc/passwd link")
    with pytest.raises(InvalidManifestPathError):
        await session.read(Path("link"))
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("nothing"))


async def test_files_and_directories(session: SandboxSession) -> None:
    await session.write(Path("deep/er/file"), io.BytesIO(b"\0\1"))
    assert (await session.read(Path("deep/er/file"))).read() == b"\0\1"
    assert await session.read_bounded(Path("a.txt"), max_bytes=3) == b"hel"
    await session.mv("a.txt", "deep/b.txt")
    assert sorted(Path(one.path).name for one in await session.ls("deep")) == ["b.txt", "er"]
    await session.rm("deep", recursive=True)
    assert not (await session.exec("test -e deep")).ok()


async def test_there_is_one_user(session: SandboxSession) -> None:
    with pytest.raises(ValueError, match="one user"):
        await session.exec("true", user="root")


async def test_output_that_nobody_reads_is_bounded(session: SandboxSession) -> None:
    update = await session.pty_exec_start("yes | head -c 50000000; echo end", yield_time_s=30)
    assert update.exit_code == 0 and len(update.output) < 2**20 + 200
    assert update.output.startswith(b"[") and update.output.endswith(b"end\n")


async def test_a_terminal_is_killed_with_its_session(session: SandboxSession) -> None:
    update = await session.pty_exec_start("exec sleep 1000", tty=True, yield_time_s=0)
    assert update.process_id is not None
    await session._inner.pty_terminate_all()
    assert b"sleep" not in (await session.exec("cat /proc/[0-9]*/comm")).stdout


async def test_a_port_is_reached_from_outside() -> None:
    client = AgentSandboxClient()
    made = await client.create(options=AgentSandboxClientOptions(exposed_ports=(8000,)))
    async with made:
        await made.write(Path("index.html"), io.BytesIO(b"from inside"))
        server = await made.pty_exec_start("python3 -u -m http.server 8000", yield_time_s=0)
        assert server.process_id is not None
        wait = "until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))' 2>&-; do :; done"
        assert (await made.exec(wait, timeout=60)).ok()
        endpoint = await made.resolve_exposed_port(8000)
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert (await reader.read()).endswith(b"from inside")
        writer.close()
    await client.delete(made)


async def test_a_session_continues_from_its_snapshot(tmp_path: Path) -> None:
    client = AgentSandboxClient()
    (tmp_path / "snapshots").mkdir()
    made = await client.create(snapshot=LocalSnapshotSpec(base_path=tmp_path / "snapshots"))
    async with made:
        await made.exec("mkdir d; echo kept > d/file; ln -s d/file link")
    stored = json.loads(json.dumps(client.serialize_session_state(made.state)))
    await client.delete(made)
    again = await client.resume(client.deserialize_session_state(stored))
    async with again:
        assert (await again.exec("cat link")).stdout == b"kept\n"
    await client.delete(again)


async def test_a_session_continues_where_the_temporary_directory_is_different(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = AgentSandboxClient()
    made = await client.create(snapshot=LocalSnapshotSpec(base_path=tmp_path / "kept"))
    async with made:
        await made.exec("echo kept > file")
    stored = json.loads(json.dumps(client.serialize_session_state(made.state)))
    await client.delete(made)
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(other))
    state = client.deserialize_session_state(stored)
    before = state.manifest.root
    again = await client.resume(state)
    async with again:
        assert (await again.exec("cat file; echo new > made")).stdout == b"kept\n"
        assert (Path(again.state.manifest.root) / "made").read_text() == "new\n"  # in its project, not in a lost place
    assert Path(again.state.manifest.root).parent == other and state.manifest.root == before
    await client.delete(again)


async def test_a_stored_state_opens_nothing(tmp_path: Path) -> None:
    client = AgentSandboxClient()
    made = await client.create()
    stored = json.loads(json.dumps(client.serialize_session_state(made.state)))
    stored["manifest"]["extra_path_grants"] = [{"path": str(tmp_path)}]
    stored["manifest"]["root"] = str(tmp_path)
    state = client.deserialize_session_state(stored)
    again = await client.resume(state)
    async with again:
        assert not (await again.exec("cat", str(tmp_path / "secret"))).ok()
    await client.delete(again)
    assert (tmp_path / "secret").exists()


async def test_a_stored_state_has_no_file_of_the_host_copied_in(tmp_path: Path) -> None:
    client = AgentSandboxClient()
    made = await client.create()
    stored = json.loads(json.dumps(client.serialize_session_state(made.state)))
    stored["manifest"]["extra_path_grants"] = [{"path": str(tmp_path)}]
    stored["manifest"]["entries"] = {"taken": {"type": "local_file", "src": str(tmp_path / "secret")}}
    again = await client.resume(client.deserialize_session_state(stored))
    with pytest.raises(LocalFileReadError):
        await again.start()
    assert not await again.running()
    await client.delete(again)


async def test_a_path_that_the_program_grants_is_shown(tmp_path: Path) -> None:
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "file").write_text("seen")
    client = AgentSandboxClient()
    grant = SandboxPathGrant(path=str(tmp_path / "shown"), read_only=True)
    made = await client.create(manifest=Manifest(extra_path_grants=(grant,)))
    async with made:
        assert (await made.exec("cat", str(tmp_path / "shown" / "file"))).stdout == b"seen"
        assert not (await made.exec("touch", str(tmp_path / "shown" / "new"))).ok()
    await client.delete(made)


# -- tools on a sandbox of yours


async def test_the_shell_tool_runs_in_the_sandbox(tmp_path: Path) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path / "project")}}) as sandbox:
        told = await run(
            lambda model: Agent(name="a", model=model, tools=[ShellTool(executor=SandboxShell(sandbox))]),
            one_after_another(
                shell("echo out; echo err >&2; exit 3", f"cat {tmp_path / 'secret'}"),
                shell("sleep 1000", "echo never", timeout_ms=500),
                shell("curl -sS http://refused.example/"),
            ),
        )
    first, second = told[0]
    assert (first["stdout"], first["stderr"]) == ("out\n", "err\n")
    assert first["outcome"] == {"type": "exit", "exit_code": 3}
    assert second["outcome"]["exit_code"] == 1 and "No such file" in second["stderr"]
    assert [one["outcome"]["type"] for one in told[1]] == ["timeout"]
    assert "refused.example:80 is not allowed" in str(told[2])


async def test_patches_are_applied_in_the_sandbox(tmp_path: Path) -> None:
    def operation(number: int, **what: str) -> Item:
        ids = {"id": f"ap_{number}", "call_id": f"call_ap_{number}", "status": "completed"}
        return {"type": "apply_patch_call", **ids, "operation": what}

    project = tmp_path / "project"
    with Sandbox({"filesystem": {"root": str(project)}}) as sandbox:
        told = await run(
            lambda model: Agent(name="a", model=model, tools=[ApplyPatchTool(editor=SandboxEditor(sandbox))]),
            one_after_another(
                operation(1, type="create_file", path="d/new", diff="+one\n+two\n"),
                operation(2, type="update_file", path="d/new", diff="@@\n-two\n+three\n"),
                operation(3, type="delete_file", path=str(tmp_path / "secret")),
            ),
        )
    assert (project / "d" / "new").read_text().split() == ["one", "three"]
    assert (tmp_path / "secret").exists() and "No such file" in str(told[2])


async def test_the_code_interpreter_keeps_its_state(tmp_path: Path) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path / "project")}}) as sandbox:
        told = await run(
            lambda model: Agent(name="a", model=model, tools=[python_tool(sandbox, seconds=20)]),
            one_after_another(
                call("run_python", code="x = 40"),
                call("run_python", code="print('hi'); x + 2"),
                call("run_python", code=f"open({str(tmp_path / 'secret')!r})"),
            ),
        )
    said = [" ".join(part["text"] for part in one) for one in told]
    assert said[1] == "hi\n\n42" and "FileNotFoundError" in said[2]


async def test_a_computer_is_the_sandboxs_own_screen(tmp_path: Path) -> None:
    def action(number: int, **what: Any) -> Item:
        ids = {"id": f"cu_{number}", "call_id": f"call_cu_{number}", "status": "completed"}
        return {"type": "computer_call", **ids, "action": what, "pending_safety_checks": []}

    with Sandbox({"filesystem": {"root": str(tmp_path / "project")}}) as sandbox:
        told = await run(
            lambda model: Agent(name="a", model=model, tools=[ComputerTool(SandboxComputer(sandbox))]),
            one_after_another(
                action(1, type="screenshot"),
                action(2, type="move", x=30, y=40),
                action(3, type="click", x=50, y=60, button="left", keys=["SHIFT"]),
                action(4, type="keypress", keys=["CTRL", "A"]),
            ),
        )
        assert sandbox.desktop.pointer() == (50, 60)
    assert len(told) == 4 and all(one["image_url"].startswith("data:image/png;base64,iVBOR") for one in told)
