"""What agents on the host act on in a project is never written from inside, whichever agent runs there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.policy.protected import AGENTS, PROTECTED
from sandbox.profiles.find import PACKAGED, load

SHIPPED = sorted(one.stem for one in Path(PACKAGED).glob("*.json") if one.stem != "shell")
pytestmark = pytest.mark.walls


def acted_on() -> list[str]:
    """Every path that a shipped profile says its program acts on."""
    return sorted({one for name in SHIPPED for one in load(name).acts_on})


def file_in(entry: str) -> str:
    """A file that the entry covers."""
    return f"{entry}x.json" if entry.endswith("/") else entry.replace("*", "c")


@pytest.mark.parametrize("name", SHIPPED)
def test_every_profile_says_what_its_program_acts_on(name: str) -> None:
    assert load(name).acts_on


def test_the_list_of_the_walls_is_that_of_the_profiles() -> None:
    named = acted_on()
    assert set(named) <= {*AGENTS, *PROTECTED}
    assert set(AGENTS) <= set(named)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of somebody who has used none of the agents."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "project/.git").mkdir(parents=True)
    return tmp_path / "project"


def config(project: Path) -> dict[str, object]:
    return {"filesystem": {"root": str(project)}}


def test_what_an_agent_of_the_host_acts_on_cannot_be_changed_at_any_depth(project: Path) -> None:
    files = [f"{top}{file_in(entry)}" for entry in acted_on() for top in ("", "packages/a/")]
    for file in files:
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).write_text("mine")
    with Sandbox(config(project)) as sandbox:
        for file in files:
            done = sandbox.exec(f"echo evil > {file} || mv {file} gone || rm {file}")
            assert done.exit_code != 0, file
            assert (project / file).read_text() == "mine"


def test_directories_of_agents_that_the_person_uses_cannot_be_made_either(project: Path, tmp_path: Path) -> None:
    (tmp_path / "home/.codex").mkdir()
    (tmp_path / "home/.config/opencode").mkdir(parents=True)
    with Sandbox(config(project)) as sandbox:
        for name in (".codex", ".opencode"):
            sandbox.exec(f"mkdir -p {name}; echo evil > {name}/x; rmdir {name}; mkdir {name}; echo evil > {name}/x")
            assert not (project / name / "x").exists()
    assert os.listdir(project) == [".git"]


def test_a_directory_of_an_agent_that_nobody_used_is_reported(project: Path) -> None:
    words = [sys.executable, "-m", "sandbox", "run", "--", "sh", "-c", "mkdir .gemini; echo {} > .gemini/settings.json"]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert f"{project}/.gemini was created or changed while the sandbox ran" in done.stderr


def test_apply_leaves_it_out_unless_it_is_named(project: Path) -> None:
    with Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox:
        assert sandbox.exec("mkdir -p .gemini a; echo {} > .gemini/settings.json; echo > a/b").exit_code == 0
        refused = dict(sandbox.apply().refused)
        assert ".gemini/settings.json" in refused
    assert not (project / ".gemini/settings.json").exists()
    assert (project / "a/b").exists()


def test_a_persons_own_profile_protects_what_its_program_acts_on(project: Path, tmp_path: Path) -> None:
    profiles = tmp_path / "state/profiles"
    profiles.mkdir(parents=True)
    (profiles / "mytool.yaml").write_text("program: sh\nacts_on: [.mytool/, mytool*.json]\n")
    (project / ".mytool").mkdir()
    for file in (".mytool/hooks", "mytool.conf.json"):
        (project / file).write_text("mine")
    script = "echo evil > .mytool/hooks; echo evil > mytool.conf.json; echo > other"
    words = [sys.executable, "-m", "sandbox", "run", "--profile", "mytool", "--", "sh", "-c", script]
    env = {**os.environ, "SANDBOX_HOME": str(tmp_path / "state")}
    subprocess.run(words, cwd=project, env=env, capture_output=True, check=True)
    assert [(project / file).read_text() for file in (".mytool/hooks", "mytool.conf.json")] == ["mine", "mine"]
