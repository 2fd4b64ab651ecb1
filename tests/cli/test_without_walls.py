"""Without walls (`mode: off`, `--no-sandbox`) a project decides nothing about what runs on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandboxes import Command

pytestmark = pytest.mark.walls

NAMES = (
    "PYTHONPATH",
    "SHELLOPTS",
    "PS4",
    "LESSOPEN",
    "VIMINIT",
    "GIT_PAGER",
    "MAKEFLAGS",
    "GOFLAGS",
    "GCONV_PATH",
    "X",
)
TOLD = "environment.set: ignored, because a project file may only tighten: without walls it would act on the host"


@pytest.fixture
def project(cli: Command, tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / ".sandbox" / "agents").mkdir(parents=True)
    (project / ".sandbox" / "agents" / "a.md").write_text("---\nname: a\ncommand: touch planted\n---\n")
    (project / "sub").mkdir()
    planted = "".join(f"    {name}: planted\n" for name in NAMES)
    (project / ".sandbox" / "config.yaml").write_text(f"filesystem: {{root: sub}}\nenvironment:\n  set:\n{planted}")
    return project


def users(home: Path, text: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(text)


@pytest.mark.parametrize("way", ["flag", "engine", "file", "disabled", "with --env"])
def test_a_projects_file_sets_no_variable_and_no_directory(cli: Command, home: Path, project: Path, way: str) -> None:
    words = {"flag": ["--mode", "off"], "engine": ["--engine", "none"], "with --env": ["--mode", "off", "--env", "A=1"]}
    if way == "file":
        users(home, "mode: off\nenvironment: {set: {OWN: mine}}\n")
    elif way == "disabled":
        users(home, "enabled: false\n")
        (project / ".sandbox" / "config.yaml").write_text("environment: {set: {X: planted}}\n")
    done = cli("run", *words.get(way, []), "--", "sh", "-c", "env; echo DIR=$(pwd -P)")
    assert "planted" not in done.stdout
    assert f"DIR={project}" in done.stdout.splitlines()
    assert TOLD in done.stderr
    if way == "file":
        assert "OWN=mine" in done.stdout.splitlines()  # the user's own file may
    if way == "with --env":
        assert "A=1" in done.stdout.splitlines()
    assert "project-only-tightens" in cli("audit", "--blocked-only", "--json").stdout


def test_behind_walls_it_still_may(cli: Command, project: Path) -> None:
    done = cli("run", "--", "sh", "-c", "echo $X; pwd")
    assert done.stdout == f"planted\n{project}/sub\n"


def test_an_agent_on_the_host_gets_nothing_of_the_projects_either(cli: Command, home: Path, project: Path) -> None:
    users(home, "agents: {allow_no_sandbox: true, runner: [sh, -c, 'env; pwd -P']}\n")
    done = cli("agent", "run", "a", "--no-sandbox")
    assert "planted" not in done.stdout
    assert str(project) in done.stdout.splitlines()
    assert TOLD in done.stderr


def test_a_projects_agent_names_no_program_for_the_host_where_the_mode_is_off(
    cli: Command, home: Path, project: Path
) -> None:
    users(home, "mode: off\n")
    done = cli("agent", "run", "a")
    assert "has no command" in done.stderr
    assert not (project / "planted").exists()
    assert not (project / "sub" / "planted").exists()
