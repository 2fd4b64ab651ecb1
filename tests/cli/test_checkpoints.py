"""pause, resume, checkpoint, fork and checkpoints, as a person uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.sandboxes import Command, program

pytestmark = pytest.mark.walls


@pytest.fixture
def running(cli: Command) -> str:
    """The id of a sandbox in the background, with a note in its home."""
    done = cli("run", "--detach", "--", "sh", "-c", "exec sleep 1000")
    assert done.returncode == 0, done.stderr
    id = done.stdout.strip()
    assert cli("exec", id, "--", "sh", "-c", "echo kept > ~/note").returncode == 0
    return id


@pytest.fixture
def saves(request: pytest.FixtureRequest) -> str:
    """What is saved of a sandbox, with the engine of this run."""
    return "machine" if request.config.getoption("--engine") == "qemu" else "files"


@pytest.fixture
def saved(cli: Command, running: str, saves: str) -> str:
    done = cli("checkpoint", running, "ready")
    assert (done.returncode, done.stdout) == (0, "ready\n"), done.stderr
    assert ("only files were saved" in done.stderr) == (saves == "files")
    return "ready"


def test_a_paused_sandbox_refuses_commands_until_it_is_resumed(cli: Command, running: str) -> None:
    assert cli("pause", running).returncode == 0
    refused = cli("exec", running, "--", "true")
    assert refused.returncode != 0
    assert f"sandbox resume {running}" in refused.stderr
    assert cli("resume", running).returncode == 0
    assert cli("exec", running, "--", "echo", "on").stdout == "on\n"


def test_checkpoints_are_listed_once_each_and_removed_by_name(
    cli: Command, running: str, saved: str, saves: str
) -> None:
    again = cli("checkpoint", running, saved)
    assert again.returncode != 0
    assert "already" in again.stderr
    (listed,) = json.loads(cli("checkpoints", "list", "--json").stdout)
    assert (listed["name"], listed["sandbox"], listed["saves"]) == (saved, running, saves)
    assert cli("checkpoints", "list").stdout.startswith(saved)
    assert cli("checkpoints", "rm", saved).stdout == f"{saved}\n"
    assert cli("checkpoints", "list").stdout == ""
    assert cli("checkpoints", "rm", saved).returncode != 0


def test_a_command_runs_in_a_fork_of_a_checkpoint_whose_sandbox_has_ended(
    cli: Command, running: str, saved: str
) -> None:
    assert cli("kill", running).returncode == 0
    done = cli("fork", saved, "--", "sh", "-c", "cat ~/note; exit 3")
    assert (done.returncode, done.stdout) == (3, "kept\n"), done.stderr


def test_forks_without_a_command_run_in_the_background(cli: Command, running: str) -> None:
    done = cli("fork", "-n", "2", running)
    assert done.returncode == 0, done.stderr
    one, two = done.stdout.split()
    assert cli("exec", one, "--", "sh", "-c", "cat ~/note; echo other > ~/note").stdout == "kept\n"
    assert cli("exec", two, "--", "sh", "-c", "cat ~/note").stdout == "kept\n"
    assert cli("checkpoints", "list").stdout == ""


def test_a_damaged_checkpoint_is_refused(cli: Command, home: Path, saved: str) -> None:
    (note,) = (home / "checkpoints" / saved / "places").glob("*/note")
    note.write_text("evil\n")
    done = cli("fork", saved, "--", "true")
    assert done.returncode == 125
    assert "damaged" in done.stderr


@pytest.mark.root
def test_a_checkpoint_of_somebody_else_is_refused(cli: Command, home: Path, saved: str) -> None:
    os.chown(home / "checkpoints" / saved, 65534, 65534)
    done = cli("fork", saved, "--", "true")
    assert done.returncode == 125
    assert "not yours alone" in done.stderr


@pytest.mark.process_walls("an emulated machine takes minutes to make so many files")
def test_a_checkpoint_whose_maker_is_killed_half_way_does_not_count_and_is_pruned(
    cli: Command, home: Path, running: str
) -> None:
    many = "mkdir ~/many && cd ~/many && seq 20000 | xargs touch"
    assert cli("exec", running, "--", "sh", "-c", many).returncode == 0
    owner = json.loads(cli("get", running).stdout)["pid"]
    with subprocess.Popen([*program(), "checkpoint", running, "half"], stderr=subprocess.PIPE) as asking:
        while not (begun := list(home.glob("checkpoints/.new-*/places"))):
            assert asking.poll() is None
        os.kill(owner, signal.SIGKILL)
        asking.communicate()
    assert asking.returncode != 0
    assert begun[0].exists()
    assert cli("checkpoints", "list").stdout == ""
    assert cli("fork", "half", "--", "true").returncode != 0
    assert cli("prune").returncode == 0
    assert list(home.glob("checkpoints/.new-*")) == []
