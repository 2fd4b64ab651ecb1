"""Protected files that the person replaces while a sandbox runs, as `git config` and editors do: by a rename, which
takes away the mount that keeps tenants from writing to the name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

from sandbox import Sandbox
from sandbox.guards import watch_later
from sandbox.guards.late_masks import LateMasks
from tests.patience import until

pytestmark = pytest.mark.walls

PLANT = "printf '[core]\\n\\tfsmonitor = touch %s\\n' {mark} >> .git/config"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    person = tmp_path / "person"
    person.mkdir()
    (person / ".gitconfig").write_text("[user]\n\tname = P\n\temail = p@example.org\n")
    monkeypatch.setenv("HOME", str(person))
    made = tmp_path / "project"
    (made / "scripts").mkdir(parents=True)
    (made / ".mcp.json").write_text("{}")
    (made / ".envrc").write_text("source scripts/env.sh\n")
    (made / "scripts" / "env.sh").write_text("export A=1\n")
    git(made, "init", "-q")
    git(made, "config", "core.pager", "less -F")
    git(made, "add", "-A")
    git(made, "commit", "-qm", "first")
    return made


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first quarter of a second of a run, and the millisecond that a watch takes: as long as a test needs."""
    monkeypatch.setattr(watch_later, "DELAY", 3600.0)


def git(project: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=project, capture_output=True, text=True, check=True).stdout


def save(path: Path, text: str) -> None:
    """As editors do."""
    beside = path.with_name("4913")
    beside.write_text(text)
    os.rename(beside, path)


def in_sandbox(project: Path) -> Sandbox:
    return Sandbox({"filesystem": {"root": str(project), "deny_write": ["kept"]}})


@pytest.mark.parametrize("name", [".mcp.json", ".envrc", "scripts/env.sh", "kept", ".git/config"])
def test_what_the_person_saves_meanwhile_is_still_out_of_a_tenants_reach(project: Path, name: str) -> None:
    (project / "kept").write_text("x")
    with in_sandbox(project) as sandbox:
        assert sandbox._guard.wait_until_watching(60)
        for turn in range(3):
            save(project / name, (project / name).read_text() + f"# {turn}\n")
            sandbox._guard.catch_up(60)
            refused = sandbox.exec(f"echo planted >> {name}")
            assert "Read-only" in refused.stderr, turn
        assert "# 2" in sandbox.exec(f"cat {name}").stdout
    assert "planted" not in (project / name).read_text()


def test_the_person_is_told_that_it_could_be_written_for_a_moment(project: Path) -> None:
    with in_sandbox(project) as sandbox:
        assert sandbox._guard.wait_until_watching(60)
        assert sandbox.notices == []
        git(project, "config", "user.name", "Q")
        sandbox._guard.catch_up(60)
        save(project / ".mcp.json", "{}")
        sandbox._guard.catch_up(60)
    assert [one for one in sandbox.notices if "may have changed it first" in one] == sandbox.notices != []


@pytest.mark.usefixtures("unwatched")
def test_a_tenant_that_keeps_it_open_is_ended(project: Path, tmp_path: Path) -> None:
    with in_sandbox(project) as sandbox:
        git(project, "config", "user.name", "Q")
        command = sandbox.spawn(["sh", "-c", "exec 7>> .git/config; : > opened; sleep 1000"])
        until((project / "opened").exists)
        sandbox._guard.catch_up(60)
        assert "has it open" in sandbox.end_reason
        del command


@pytest.mark.usefixtures("unwatched")
def test_a_program_that_is_just_writing_it_ends_nothing(project: Path) -> None:
    with in_sandbox(project) as sandbox:
        (project / ".mcp.json").unlink()
        with open(project / ".mcp.json", "w") as file:
            Timer(0.05, file.close).start()
            sandbox._guard.catch_up(60)
        assert "Read-only" in sandbox.exec("echo planted >> .mcp.json").stderr


def test_so_is_a_directory_that_the_person_makes_again(project: Path) -> None:
    (project / ".vscode").mkdir()
    with in_sandbox(project) as sandbox:
        assert sandbox._guard.wait_until_watching(60)
        (project / ".vscode").rmdir()
        (project / ".vscode").mkdir()
        sandbox._guard.catch_up(60)
        assert "Read-only" in sandbox.exec("touch .vscode/tasks.json").stderr
        os.rename(project / "scripts", project / "old")
        (project / "scripts").mkdir()
        (project / "scripts" / "env.sh").write_text("export B=1\n")
        sandbox._guard.catch_up(60)
        assert "Read-only" in sandbox.exec("echo planted >> scripts/env.sh").stderr


def test_what_is_made_in_a_new_directory_before_that_is_watched_is_frozen(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = LateMasks._add

    def late(self: LateMasks, root: str) -> None:
        if root == str(project / "scripts"):
            (project / "scripts" / "env.sh").write_text("export B=1\n")
        add(self, root)

    with in_sandbox(project) as sandbox:
        assert sandbox._guard.wait_until_watching(60)
        monkeypatch.setattr(LateMasks, "_add", late)
        os.rename(project / "scripts", project / "old")
        (project / "scripts").mkdir()
        sandbox._guard.catch_up(60)
        assert "Read-only" in sandbox.exec("echo planted >> scripts/env.sh").stderr


def test_what_was_replaced_before_the_watch_begins_is_frozen_by_then(project: Path) -> None:
    with in_sandbox(project) as sandbox:
        save(project / ".mcp.json", "{}")
        sandbox._guard.catch_up(60)
        assert "Read-only" in sandbox.exec("echo planted >> .mcp.json").stderr


@pytest.mark.usefixtures("unwatched")
def test_a_tenant_who_is_quicker_makes_git_of_the_host_run_nothing(project: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    with in_sandbox(project) as sandbox:
        git(project, "remote", "add", "origin", "https://host.example/x.git")
        assert sandbox.exec(PLANT.format(mark=mark)).ok  # it is not frozen now
    git(project, "status")
    assert not mark.exists()
    assert [path for path, _ in sandbox._undone] == [f"{project}/.git/config"]
    # What was there before stays, and so does what is known to be harmless.
    assert git(project, "config", "--get", "core.pager") == "less -F\n"
    assert git(project, "config", "--get", "remote.origin.url") == "https://host.example/x.git\n"


@pytest.mark.usefixtures("unwatched")
def test_a_setting_of_the_persons_is_not_taken_for_a_tenants(project: Path) -> None:
    with in_sandbox(project) as sandbox:
        git(project, "config", "branch.main.merge", "refs/heads/main")
        before = (project / ".git" / "config").read_text()
    assert sandbox._undone == [] and sandbox._made == []
    assert (project / ".git" / "config").read_text() == before


@pytest.mark.usefixtures("unwatched")
@pytest.mark.parametrize("number", ["another", "the same"])
def test_what_was_replaced_is_reported(project: Path, number: str) -> None:
    path = project / ".mcp.json"
    with in_sandbox(project) as sandbox:
        if number == "another":
            save(path, "{}")
        else:  # some file systems give a new file the number of the one that was removed
            path.unlink()
            path.write_text("{}")
        assert sandbox.exec("echo planted >> .mcp.json").ok
    assert sandbox._made == [str(path)]


@pytest.mark.usefixtures("unwatched")
def test_what_the_person_changes_in_place_is_not_reported(project: Path) -> None:
    with in_sandbox(project) as sandbox:
        (project / ".mcp.json").write_text('{"a": 1}')
        assert "Read-only" in sandbox.exec("echo planted >> .mcp.json").stderr
    assert sandbox._made == []


@pytest.mark.parametrize("then", ["run", "prune"])
def test_after_a_killed_owner_it_is_undone_too(project: Path, tmp_path: Path, then: str) -> None:
    plant = PLANT.format(mark=tmp_path / "ran")
    script = f"""
import os, subprocess, sandbox
from sandbox.guards import watch_later
from sandbox.guards.late_masks import LateMasks
watch_later.DELAY = 3600.0
s = sandbox.Sandbox({{"filesystem": {{"root": {str(project)!r}}}}})
subprocess.run(["git", "config", "user.name", "Q"], cwd={str(project)!r})
assert s.exec({plant!r}).ok
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    config = project / ".git" / "config"
    assert "fsmonitor" in config.read_text()
    (project / "sub").mkdir()
    (project / "sub" / ".envrc").write_text("echo planted")  # as if a tenant had
    words = ["run", "--root", str(project), "--", "true"] if then == "run" else ["prune"]
    done = subprocess.run(
        [sys.executable, "-m", "sandbox.cli.main", *words], capture_output=True, text=True, check=True
    )
    assert "git on the host may have run" in done.stderr or then == "prune"
    assert f"{config} would make git on the host run a program" in done.stderr
    assert "it may have run this already" in done.stderr
    assert f"{project}/sub/.envrc was created or changed" in done.stderr
    assert "fsmonitor" not in config.read_text()
    assert "less -F" in config.read_text()
