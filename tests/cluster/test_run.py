"""`sandbox run` on a cluster, without another word changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.three_nodes import ThreeNodes
from tests.pool.test_late import fill_project

COMMAND = [sys.executable, "-m", "sandbox.cli.main"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return fill_project(tmp_path / "project")


def sandbox(
    project: Path, *words: str, cluster: str | None = None, input: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SANDBOX_HOME": str(project.parent / "home"), **more}
    env.pop("SANDBOX_CLUSTER", None)
    if cluster is not None:
        env["SANDBOX_CLUSTER"] = cluster
    return subprocess.run([*COMMAND, *words], cwd=project, env=env, input=input, capture_output=True, text=True)


def test_the_variable_sends_the_command_and_the_changes_come_back_to_review(
    cluster: Any, machines: ThreeNodes, project: Path
) -> None:
    script = "cat; cat notes.txt .env; echo made > new; exit 7"
    ran = sandbox(project, "run", "--", "sh", "-c", script, cluster=machines.address, input="typed\n")
    assert (ran.returncode, ran.stdout) == (7, "typed\nplain\n"), ran.stderr
    assert not (project / "new").exists()
    id = next(word for word in ran.stderr.replace("`", " ").split() if word.startswith("vm-"))
    assert sandbox(project, "apply", id).returncode == 0
    assert (project / "new").read_text() == "made\n"


def test_the_configuration_sends_it_too_and_an_empty_variable_keeps_it_here(
    cluster: Any, machines: ThreeNodes, project: Path
) -> None:
    home = project.parent / "home"
    home.mkdir()
    (home / "config.yaml").write_text(f"cluster: {machines.address}\nenvironment: {{allow: [COLOUR]}}\n")
    there = sandbox(project, "run", "--json", "--", "sh", "-c", "echo $COLOUR $SIZE", COLOUR="green", SIZE="9")
    told = json.loads(there.stdout)
    assert told["node"] in {one["node"] for one in cluster.nodes()}
    assert told["stdout"].startswith("green")
    here = sandbox(project, "run", "--json", "--", "true", cluster="")
    assert "node" not in json.loads(here.stdout)


def test_a_project_cannot_send_it_anywhere(project: Path) -> None:
    (project / ".sandbox").mkdir()
    (project / ".sandbox/config.yaml").write_text("cluster: ray://192.0.2.1:10001\n")
    ran = sandbox(project, "run", "--", "echo", "here")
    assert ran.stdout == "here\n" and "cluster: ignored" in ran.stderr


def test_a_client_of_ray_is_enough(cluster: Any, machines: ThreeNodes, project: Path) -> None:
    ran = sandbox(project, "run", "--", "cat", "notes.txt", cluster=machines.client_address)
    assert (ran.returncode, ran.stdout) == (0, "plain\n"), ran.stderr


def test_what_an_option_hides_does_not_travel(cluster: Any, machines: ThreeNodes, project: Path) -> None:
    (project / "strict.yaml").write_text("filesystem: {blocked_patterns: [notes.txt]}\n")
    config = ("--config", str(project / "strict.yaml"))
    ran = sandbox(project, "run", *config, "--", "sh", "-c", "cat notes.txt; ls", cluster=machines.address)
    assert "plain" not in ran.stdout and "strict.yaml" in ran.stdout, ran.stderr


@pytest.mark.parametrize("option", [["--detach"], ["--publish", "80"], ["--localhost", "80"]])
def test_what_is_about_this_machine_is_refused(project: Path, option: list[str]) -> None:
    ran = sandbox(project, "run", *option, "--", "true", cluster="192.0.2.1:6379")
    assert ran.returncode == 125 and "works only on this machine" in ran.stderr


def test_a_secret_from_a_file_is_read_here(tmp_path: Path) -> None:
    from sandbox.cluster.node_config import with_secrets

    (tmp_path / "key").write_text("sk-from-a-file-1\n")
    given = {"network": {"secrets": {"KEY": {"from_file": str(tmp_path / "key"), "hosts": ["api.test"]}}}}
    assert with_secrets(given)["network"]["secrets"] == {"KEY": {"value": "sk-from-a-file-1", "hosts": ["api.test"]}}
