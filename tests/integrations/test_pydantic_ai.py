"""Pydantic AI: the suite it ships for workspace backends, and an agent with its test model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.workspaces import WorkspaceOutputLimitError, WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from sandbox.integrations.pydantic_workspace import SandboxWorkspace

pytestmark = [pytest.mark.integrations, pytest.mark.anyio]


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[SandboxWorkspace]:
    (tmp_path / "project").mkdir()
    async with SandboxWorkspace({"filesystem": {"root": str(tmp_path / "project")}}) as made:
        yield made


class TestPydanticsSuite(WorkspaceBackendSuite):  # type: ignore[misc]
    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[SandboxWorkspace]:
        (tmp_path / "project").mkdir()
        async with SandboxWorkspace({"filesystem": {"root": str(tmp_path / "project")}}) as made:
            yield made

    @pytest.fixture
    async def fresh_backend(self, tmp_path: Path) -> AsyncIterator[Callable[[], SandboxWorkspace]]:
        made: list[SandboxWorkspace] = []

        def fresh() -> SandboxWorkspace:
            place = tmp_path / f"fresh-{len(made)}"
            place.mkdir()
            made.append(SandboxWorkspace({"filesystem": {"root": str(place)}}))
            return made[-1]

        yield fresh
        for one in made:
            await one.close()

    @pytest.fixture
    async def attach_backend(self) -> AsyncIterator[Callable[[WorkspaceRef], SandboxWorkspace]]:
        made: list[SandboxWorkspace] = []

        def attach(ref: WorkspaceRef) -> SandboxWorkspace:
            made.append(SandboxWorkspace(ref=ref))
            return made[-1]

        yield attach
        for one in made:
            await one.close()

    @pytest.fixture
    def destroy_environment(self) -> Callable[[SandboxWorkspace], Awaitable[None]]:
        return SandboxWorkspace.close


async def test_files_of_the_host_are_out_of_reach(backend: SandboxWorkspace, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    assert not await backend.exists(str(tmp_path / "secret"))
    assert (await backend.run(["cat", str(tmp_path / "secret")])).exit_code == 1


async def test_output_that_is_cut_is_an_error(backend: SandboxWorkspace) -> None:
    with pytest.raises(WorkspaceOutputLimitError):
        await backend.run("head -c 11000000 /dev/zero", shell=True)


async def test_the_project_is_not_removed_by_another_name(backend: SandboxWorkspace) -> None:
    here = await backend.working_dir()
    await backend.run(["ln", "-s", "/", "root"])
    with pytest.raises(ValueError, match="working directory"):
        await backend.remove(f"{here}/root{here}")


async def test_a_loop_of_links_has_no_real_path(backend: SandboxWorkspace) -> None:
    await backend.run(["ln", "-s", "loop", "loop"])
    with pytest.raises(OSError, match="symbolic links"):
        await backend.remove(f"{await backend.working_dir()}/loop/file")


async def test_an_agent_runs_code_that_keeps_its_state(backend: SandboxWorkspace) -> None:
    told: list[Any] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        told.extend(part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart))
        if len(told) < 2:
            code = "x = 40" if not told else "print('hi'); x + 2"
            return ModelResponse(parts=[ToolCallPart("run_python", {"code": code})])
        return ModelResponse(parts=[TextPart("done")])

    agent = Agent(FunctionModel(model), tools=[backend.code_tool()])
    result = await agent.run("compute")
    assert result.output == "done" and told == ["(no output)", "hi\n\n42"]
