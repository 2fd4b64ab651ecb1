"""Scripts that trusted settings name: a tenant may change them, and the person learns of it in time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.walls

SETTINGS = {
    ".claude/settings.json": '{"hooks": {"Stop": [{"command": "\\"$CLAUDE_PROJECT_DIR\\"/scripts/hook.sh"}]}}',
    ".mcp.json": '{"mcpServers": {"a": {"command": "python3", "args": ["server.py"]}}}',
    ".vscode/tasks.json": '{"tasks": [{"command": "${workspaceFolder}/scripts/task.sh", "runOn": "folderOpen"}]}',
}
NAMED = ["scripts/hook.sh", "server.py", "scripts/task.sh"]


def changed_in_a_run(project: Path, command: str, *options: str) -> list[str]:
    """The files that a run reports as changed."""
    environment = {**os.environ, "SANDBOX_HOME": str(project.parent / "own"), "HOME": str(project.parent)}
    words = [sys.executable, "-I", "-m", "sandbox", "run", *options, "--", "sh", "-c", command]
    done = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "created or changed" in line]
    return [line.split(": ", 1)[1].split(" was ")[0].removeprefix(f"{project}/") for line in told]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    for name in SETTINGS:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(SETTINGS[name])
    (place / "scripts").mkdir()
    for name in (*NAMED, "other.py"):
        (place / name).write_text("echo theirs\n")
    return place


@pytest.mark.parametrize("name", NAMED)
def test_a_changed_script_that_settings_of_the_host_name_is_reported(project: Path, name: str) -> None:
    assert changed_in_a_run(project, f"echo mine >> {name}; echo mine >> other.py; ls > new") == [name]


def test_so_is_one_that_appears_where_they_name_it_or_is_moved_there(project: Path) -> None:
    (project / "server.py").unlink()
    command = "echo mine > server.py; mv scripts old; mkdir scripts; mv other.py scripts/hook.sh"
    assert changed_in_a_run(project, command) == ["scripts/hook.sh", "server.py"]


def test_nothing_is_reported_if_they_stay_or_are_changed_in_an_overlay(project: Path) -> None:
    assert changed_in_a_run(project, "cat scripts/hook.sh; echo x >> other.py") == []
    assert changed_in_a_run(project, "echo mine >> scripts/hook.sh", "--overlay") == []


def test_a_script_that_a_hook_names_and_that_a_tenant_makes_is_reported(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    hook = project / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n[ ! -x scripts/local ] || exec scripts/local\n")
    hook.chmod(0o755)
    assert changed_in_a_run(project, "echo mine > other") == []
    assert changed_in_a_run(project, "mkdir scripts; echo mine > scripts/local") == ["scripts/local"]
