"""A project that somebody renames while a sandbox runs, or after its owner was killed, is put right all the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import Sandbox
from tests.security.test_git_ways import Person, Way

pytestmark = pytest.mark.walls

PLANT = "git init -q lib; git -C lib config core.fsmonitor x; echo x > lib/.git/hooks/pre-commit; ln -s config .git/NEW"


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "own"))
    (tmp_path / "above").mkdir()
    return Person(tmp_path / "above", monkeypatch, Way("", ""))


def is_clean(project: Path) -> bool:
    """Whether git of the host would run nothing there."""
    hook, link = project / "lib/.git/hooks/pre-commit", project / ".git/NEW"
    return "fsmonitor" not in (project / "lib/.git/config").read_text() and not hook.exists() and not link.is_symlink()


def killed(project: Path) -> None:
    script = f"""
import os, sandbox
s = sandbox.Sandbox({{"filesystem": {{"root": {str(project)!r}}}}})
s.exec({PLANT!r})
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script], check=False, timeout=120)
    assert not is_clean(project)


def run(*words: str) -> str:
    command = [sys.executable, "-m", "sandbox.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stderr


@pytest.mark.parametrize("above", [False, True], ids=["itself", "a directory above it"])
@pytest.mark.parametrize("another", [False, True], ids=["nothing there", "another there"])
def test_what_git_would_run_is_undone_where_the_project_is_now(above: bool, another: bool, person: Person) -> None:
    old = person.project.parent if above else person.project
    new = old.with_name("elsewhere")
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        old.rename(new)
        if another:
            (person.project / ".vscode").mkdir(parents=True)
        assert sandbox.exec(PLANT).ok
    project = new / "project" if above else new
    assert is_clean(project)
    assert not (project / ".vscode").exists()
    assert {path for path, _ in sandbox._undone} >= {str(project / "lib/.git/config"), str(project / ".git/NEW")}
    assert any(str(project) in notice for notice in sandbox.notices)
    if another:
        assert os.listdir(person.project) == [".vscode"]


def test_after_a_killed_owner_the_next_run_undoes_it_at_the_new_path(person: Person) -> None:
    killed(person.project)
    new = person.project.rename(person.project.with_name("elsewhere"))
    assert str(person.project) in run("prune")  # says that it was not found, and does not forget it
    assert not is_clean(new)
    assert "config.from-sandbox" in run("run", "--root", str(new), "--", "true")
    assert is_clean(new)
    assert run("prune") == ""


def test_another_directory_at_the_old_path_is_left_alone(person: Person) -> None:
    killed(person.project)
    new = person.project.rename(person.project.with_name("elsewhere"))
    shutil.copytree(new, person.project, symlinks=True)
    run("prune")
    assert not is_clean(person.project)  # its owner made it
