"""inspect_ai: the checks it ships for sandbox environments, and a whole evaluation with its mock model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from inspect_ai import Task, eval, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import SandboxEnvironment, SandboxEnvironmentSpec
from inspect_ai.util._sandbox.events import SandboxEnvironmentProxy
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from sandbox.errors import ConfigError
from sandbox.integrations.inspect_environment import AgentSandboxEnvironment, SandboxConfig

pytestmark = [pytest.mark.integrations, pytest.mark.anyio]

#: What a sandbox cannot do, by design.
CANNOT = {"test_exec_as_user": "it makes a second user; a sandbox has one, and no command can become another"}


@pytest.fixture
async def sandbox_env(request: pytest.FixtureRequest) -> AsyncIterator[SandboxEnvironment]:
    if reason := CANNOT.get(request.node.originalname):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    kind = registry_find_sandboxenv("sandbox")  # by its entry point
    environments = await kind.sample_init("check", None, {})
    yield environments["default"]
    await kind.sample_cleanup("check", None, environments, False)


async def test_the_connection_names_our_command(sandbox_env: SandboxEnvironment) -> None:
    connection = await sandbox_env.connection()
    assert connection.command.startswith("sandbox attach vm-")


async def test_a_remote_command_runs_by_inspects_own_program_inside(sandbox_env: SandboxEnvironment) -> None:
    done = await SandboxEnvironmentProxy(sandbox_env).exec_remote(["echo", "hello"], stream=False)
    assert (done.returncode, done.stdout) == (0, "hello\n")


async def test_files_of_the_host_are_out_of_reach(sandbox_env: SandboxEnvironment, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    with pytest.raises(FileNotFoundError):
        await sandbox_env.read_file(str(tmp_path / "secret"))


async def test_a_configuration_that_is_wrong_stops_the_task(tmp_path: Path) -> None:
    file = tmp_path / "sandbox.yaml"
    file.write_text("network: [")
    with pytest.raises(ConfigError):
        await AgentSandboxEnvironment.task_init("check", str(file))


@pytest.mark.parametrize("form", ["file", "model"])
async def test_a_task_has_a_configuration(tmp_path: Path, form: str) -> None:
    file = tmp_path / "sandbox.yaml"
    file.write_text("environment: {set: {COLOUR: blue}}\n")
    config = str(file) if form == "file" else SandboxConfig(environment={"set": {"COLOUR": "blue"}})
    environments = await AgentSandboxEnvironment.sample_init("check", config, {})
    try:
        assert (await environments["default"].exec(["sh", "-c", "echo $COLOUR"])).stdout == "blue\n"
    finally:
        await AgentSandboxEnvironment.sample_cleanup("check", config, environments, False)


async def test_samples_share_a_project_and_none_changes_it(tmp_path: Path) -> None:
    (tmp_path / "given").write_text("given")
    config = SandboxConfig(filesystem={"root": str(tmp_path)})
    environments = await AgentSandboxEnvironment.sample_init("check", config, {})
    try:
        await environments["default"].write_file("given", "changed")
        assert await environments["default"].read_file("given") == "changed"
    finally:
        await AgentSandboxEnvironment.sample_cleanup("check", config, environments, False)
    assert (tmp_path / "given").read_text() == "given"


def test_an_evaluation_runs_its_tools_behind_walls(tmp_path: Path) -> None:
    @task
    def look() -> Task:
        return Task(
            dataset=[Sample(input="What is in the file?", target="quartz", files={"clue.txt": "quartz"})],
            solver=[use_tools(bash()), generate()],
            scorer=includes(),
            sandbox=SandboxEnvironmentSpec("sandbox", SandboxConfig(network={"preset": "closed"})),
        )

    answers = [
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat clue.txt"}),
        ModelOutput.from_content("mockllm/model", "It says quartz."),
    ]
    for one in answers:
        one.usage = ModelUsage()  # else they are counted, by a table from the internet
    model = get_model("mockllm/model", custom_outputs=answers)
    (log,) = eval(look(), model=model, log_dir=str(tmp_path), display="none")
    assert log.status == "success", log.error
    assert log.samples is not None
    told = [message.text for message in log.samples[0].messages if message.role == "tool"]
    assert told == ["quartz"]
    assert log.results is not None and log.results.scores[0].metrics["accuracy"].value == 1
