"""Of two sandboxes in one project, the owner of the first is killed: the second one checks what the first's tenants
left, also what they did before the second began."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.guards.repositories import MARGIN
from tests.patience import until

pytestmark = pytest.mark.walls

OWNER = """
import sys, sandbox
s = sandbox.Sandbox({"filesystem": {"root": sys.argv[1]}})
s.exec("cp astray .git/index; echo {} > sub/.mcp.json")
print("planted", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def repository(project: Path) -> Path:
    """`astray` is an index that names a hook."""
    name = "+git+hooks+pre-commit"
    (project / "sub").mkdir()
    (project / name).write_text("#!/bin/sh\n")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    subprocess.run(["git", "add", name], cwd=project, check=True)
    data = (project / ".git" / "index").read_bytes()[:-20].replace(name.encode(), b".git/hooks/pre-commit")
    (project / "astray").write_bytes(data + hashlib.sha1(data).digest())
    return project


@pytest.fixture
def first(repository: Path) -> Iterator[subprocess.Popen[str]]:
    """The owner of a sandbox whose tenants have planted something."""
    words = [sys.executable, "-c", OWNER, str(repository)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == "planted\n"
        until(lambda: time.time_ns() > (repository / "sub").stat().st_ctime_ns + MARGIN)
        yield owner
        owner.kill()


def test_what_git_would_act_on_is_undone_at_the_end_of_the_other(
    repository: Path, first: subprocess.Popen[str]
) -> None:
    with Sandbox({"filesystem": {"root": str(repository)}}) as second:
        first.kill()
        first.wait()
    index = repository / ".git" / "index"
    assert not index.exists()
    assert [path for path, _ in second._undone] == [str(index)]


def test_what_programs_act_on_is_reported_by_the_other(repository: Path, first: subprocess.Popen[str]) -> None:
    with Sandbox({"filesystem": {"root": str(repository)}}) as second:
        first.kill()
        first.wait()
    assert second._made == [f"{repository}/sub/.mcp.json"]


def test_what_a_sandbox_made_that_still_runs_is_not_reported_by_the_other(
    repository: Path, first: subprocess.Popen[str]
) -> None:
    with Sandbox({"filesystem": {"root": str(repository)}}) as second:
        pass
    assert second._made == []  # its own owner will report it
