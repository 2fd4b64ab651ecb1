"""Programs that the person starts by name, and files that run when a directory is entered: not a tenant's to choose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.walls


def run(tmp_path: Path, place: Path, path: Path, command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SANDBOX_HOME": str(tmp_path / "own"), "HOME": str(tmp_path / "user")}
    environment["PATH"] = f"{path}{os.pathsep}/usr/bin{os.pathsep}/bin"
    words = [sys.executable, "-I", "-m", "sandbox", "run", "--", "sh", "-c", command]
    return subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, check=False)


def test_a_new_program_that_a_shell_would_run_instead_of_another_is_reported(tmp_path: Path) -> None:
    project = tmp_path / "project"
    path = project / ".venv/bin"
    path.mkdir(parents=True)
    (tmp_path / "user").mkdir()
    done = run(tmp_path, project, path, "echo x > .venv/bin/ls; echo x > .venv/bin/no-such-tool-elsewhere")
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if str(path) in line]
    assert len(told) == 1
    assert f"{path}/ls " in told[0]


def test_in_a_home_that_is_the_project_the_programs_on_path_are_read_only(tmp_path: Path) -> None:
    place = tmp_path / "user"
    (place / "bin").mkdir(parents=True)
    done = run(tmp_path, place, place / "bin", "echo x > bin/ls; mv bin other; echo kept > file")
    assert os.listdir(place / "bin") == [], done.stderr
    assert (place / "file").read_text() == "kept\n"


@pytest.mark.parametrize("name", ["mise.toml", ".mise.toml", ".mise/config.toml", ".devcontainer.json", ".envrc"])
def test_what_runs_when_a_directory_is_entered_cannot_be_changed(tmp_path: Path, name: str) -> None:
    project = tmp_path / "project"
    (tmp_path / "user").mkdir()
    (project / name).parent.mkdir(parents=True)
    (project / name).write_text("theirs\n")
    done = run(tmp_path, project, tmp_path, f"echo x > {name}; rm {name}; echo x > {name}; true")
    assert done.returncode == 0, done.stderr
    assert (project / name).read_text() == "theirs\n"
