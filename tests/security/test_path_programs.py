"""Programs that the person starts by name, and files that run when a directory is entered: not a tenant's to choose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.guards.path_programs import on_path

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


def test_a_project_below_usr_has_its_programs_on_path_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/src/app/bin:/usr/bin:/bin")  # as in many container images
    assert on_path(["/usr/src/app"]) == ["/usr/src/app/bin"]


def test_in_a_home_that_is_the_project_the_programs_on_path_are_read_only(tmp_path: Path) -> None:
    place = tmp_path / "user"
    (place / "bin").mkdir(parents=True)
    done = run(tmp_path, place, place / "bin", "echo x > bin/ls; mv bin other; echo kept > file")
    assert os.listdir(place / "bin") == [], done.stderr
    assert (place / "file").read_text() == "kept\n"


ENTERED = [
    "mise.toml", "mise.production.toml", ".mise.toml", ".mise/config.toml", ".devcontainer.json", ".envrc",
    ".lazygit.yml", ".iex.exs",
]  # fmt: skip


@pytest.mark.parametrize("name", ENTERED)
def test_what_runs_when_a_directory_is_entered_cannot_be_changed(tmp_path: Path, name: str) -> None:
    project = tmp_path / "project"
    (tmp_path / "user").mkdir()
    (project / name).parent.mkdir(parents=True)
    (project / name).write_text("theirs\n")
    done = run(tmp_path, project, tmp_path, f"echo x > {name}; rm {name}; echo x > {name}; true")
    assert done.returncode == 0, done.stderr
    assert (project / name).read_text() == "theirs\n"


ENVRC = "source_env helpers/setup.sh\n. plain.sh\nsource_env_if_exists later.sh\nexport DATA=./data/x.yaml\nuse flake\n"


def test_what_such_a_file_sources_cannot_be_changed_or_made_either(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (tmp_path / "user").mkdir()
    kept = ("helpers/setup.sh", "plain.sh", "flake.nix", ".direnv/flake-profile.rc")
    for name in (*kept, "data/x.yaml"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("theirs\n")
    (project / ".envrc").write_text(ENVRC)
    attack = (
        "for one in {} data/x.yaml later.sh; do echo x > $one; done; mv helpers other; rm -rf helpers .direnv; true"
    )
    done = run(tmp_path, project, tmp_path, attack.format(" ".join(kept)))
    assert done.returncode == 0, done.stderr
    assert [(project / name).read_text() for name in kept] == ["theirs\n"] * len(kept)
    assert (project / "data" / "x.yaml").read_text() == "x\n"  # a value is not run
    assert not (project / "later.sh").exists() and "later.sh" in done.stderr


def test_a_virtual_environment_that_such_a_file_activates_can_be_made_again(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (tmp_path / "user").mkdir()
    (project / ".venv" / "bin").mkdir(parents=True)
    (project / ".venv" / "pyvenv.cfg").write_text("")
    (project / ".venv" / "bin" / "activate").write_text("")
    (project / ".envrc").write_text("source .venv/bin/activate\n")
    done = run(tmp_path, project, tmp_path, "rm -r .venv && mkdir .venv")
    assert done.returncode == 0, done.stderr


def test_a_program_on_path_that_was_changed_is_reported(tmp_path: Path) -> None:
    project = tmp_path / "project"
    path = project / ".venv/bin"
    path.mkdir(parents=True)
    (tmp_path / "user").mkdir()
    for name in ("python", "tool"):
        (path / name).write_text("theirs\n")
    done = run(tmp_path, project, path, "echo x > .venv/bin/python")
    told = [line for line in done.stderr.splitlines() if str(path) in line]
    assert done.returncode == 0 and len(told) == 1 and f"{path}/python " in told[0], done.stderr
    for number in range(20):
        (path / f"tool{number}").write_text("theirs\n")
    done = run(tmp_path, project, path, "for one in .venv/bin/tool*; do echo x > $one; done")
    told = [line for line in done.stderr.splitlines() if str(path) in line]
    assert done.returncode == 0 and len(told) == 1, done.stderr
