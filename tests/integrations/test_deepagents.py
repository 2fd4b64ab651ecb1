"""deepagents: LangChain's own suite for sandboxes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests

from sandbox import Sandbox
from sandbox.integrations.deepagents_backend import SandboxBackend
from tests.patience import given_time

pytestmark = [pytest.mark.integrations, pytest.mark.anyio]

#: What deepagents 0.7 itself does otherwise than the suite says, which was written for 0.6. None of it is ours: the
#: same tests fail for a backend that runs commands without any sandbox.
GLOB = "`BaseSandbox.glob` of this version returns whole paths and leaves directories out, with or without a sandbox"
WRITE = "`BaseSandbox.write` of this version overwrites, with or without a sandbox"
DIFFERS = (
    {}
    if version("deepagents").startswith("0.6.")
    else {
        "test_glob": GLOB,
        "test_glob_basic_pattern": GLOB,
        "test_glob_with_directories": GLOB,
        "test_glob_hidden_files_explicitly": GLOB,
        "test_glob_with_character_class": GLOB,
        "test_glob_with_question_mark": GLOB,
        "test_write_existing_file_fails": WRITE,
    }
)


class TestLangChainsSuite(SandboxIntegrationTests):  # type: ignore[misc]
    @pytest.fixture(scope="class")
    def sandbox(
        self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[SandboxBackend]:
        # Made once for all tests, before `--engine` says what `auto` means in each.
        engine = request.config.getoption("--engine") or "auto"
        config = {"engine": engine, "filesystem": {"root": str(tmp_path_factory.mktemp("project"))}}
        with SandboxBackend(config) as backend:
            yield backend

    @pytest.fixture(autouse=True)
    def _differs(self, request: pytest.FixtureRequest) -> None:
        if reason := DIFFERS.get(request.node.originalname):
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


def test_a_command_that_is_cancelled_is_killed(tmp_path: Path) -> None:
    async def run(backend: SandboxBackend) -> None:
        task = asyncio.create_task(backend.aexecute("echo > began; exec sleep 1000", timeout=0))
        while not (tmp_path / "began").exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with SandboxBackend({"filesystem": {"root": str(tmp_path)}}) as backend:
        asyncio.run(run(backend))
        while "sleep" in backend.execute("cat /proc/[0-9]*/comm").output:
            pass  # it is killed a moment later


def test_a_sandbox_that_was_given_stays_open(tmp_path: Path) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        with SandboxBackend(sandbox) as backend:
            assert backend.id == sandbox.id
            assert backend.execute("exit 3").exit_code == 3
            late = given_time(
                lambda seconds: backend.execute("echo begun; sleep 100", timeout=math.ceil(seconds)),
                lambda done: "begun" in done.output,
            )
            assert late.exit_code == 124 and "begun" in late.output
        assert sandbox.exec("true").ok
