"""What a tenant leaves to make the clean-up stumble stops neither the rest of it, nor the end, nor the next start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.guards.repositories import Repositories
from sandbox.vfs.file_state import open_regular
from tests.security.test_git_ways import Person, Way

pytestmark = pytest.mark.walls

HOOKS = (
    "for one in a b c d e f; do git init -q $one; echo x > $one/.git/hooks/pre-commit;"
    "git -C $one config core.fsmonitor x; done;"
)
STUMBLES = {
    "a directory that cannot be listed": "mkdir -p sub/.vscode; touch sub/.vscode/tasks.json; chmod 000 sub/.vscode",
    "a linked rebase": "mkdir y; echo 'exec x' > y/git-rebase-todo; ln -s ../y .git/rebase-merge",
    "a linked rebase of its own": "git init -q l; mkdir y; echo 'exec x' > y/git-rebase-todo;"
    "ln -s ../../y l/.git/rebase-merge",
    "a NUL in .git": "mkdir n; printf 'gitdir: ../a/.git\\0x' > n/.git",
    "a NUL in commondir": "git init -q n; printf '../../a/.git\\0x' > n/.git/commondir",
    "a NUL in gitdir": "git init -q n; printf '/a\\0/x' > n/.git/gitdir",
}
every = pytest.mark.parametrize("stumble", STUMBLES.values(), ids=list(STUMBLES))


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    personal = "[core]\n\thooksPath = .githooks\n"  # looked for in every work tree
    return Person(tmp_path, monkeypatch, Way("", "", personal=personal))


def left(project: Path) -> list[Path]:
    """What git of the host would run."""
    repositories = [project / one / ".git" for one in "abcdef"]
    hooks = [one / "hooks" / "pre-commit" for one in repositories]
    configs = [one / "config" for one in repositories]
    todos = [project / one / "rebase-merge" / "git-rebase-todo" for one in (".git", "l/.git")]
    return [
        *(one for one in hooks if one.exists()),
        *(one for one in configs if "fsmonitor" in one.read_text()),
        *(one for one in todos if one.exists() and "exec" in one.read_text()),
        *(one for one in (project / "n" / ".git", project / "n/.git/commondir") if one.is_file() and _has_nul(one)),
    ]


def _has_nul(path: Path) -> bool:
    return b"\0" in path.read_bytes()


@every
def test_one_hostile_file_does_not_keep_the_rest_from_being_undone(stumble: str, person: Person) -> None:
    config = {"filesystem": {"root": str(person.project)}}
    with Sandbox(config) as sandbox:
        sandbox.exec(HOOKS + stumble)
    assert left(person.project) == []
    with Sandbox(config) as again:
        assert again.exec("true").exit_code == 0


@every
def test_after_a_killed_owner_a_hostile_file_does_not_stop_the_next_start(
    stumble: str, person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "own"))
    script = f"""
import os, sandbox
from sandbox.guards import watch_later
watch_later.DELAY = 3600  # no process stands by to undo it
s = sandbox.Sandbox({{"filesystem": {{"root": {str(person.project)!r}}}}})
s.exec({HOOKS + stumble!r})
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    words = ["run", "--root", str(person.project), "--", "true"]
    done = subprocess.run([sys.executable, "-m", "sandbox.cli.main", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert left(person.project) == []


def test_a_directory_that_cannot_be_listed_is_reported(person: Person) -> None:
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        sandbox.exec(STUMBLES["a directory that cannot be listed"])
    assert str(person.project / "sub" / ".vscode") in sandbox._made


def test_an_ending_that_fails_does_not_keep_the_others_from_running(tmp_path: Path) -> None:
    sandbox = Sandbox({"filesystem": {"root": str(tmp_path)}})
    ran = []

    def fails() -> None:
        raise OSError("the first")

    sandbox._endings.append(lambda: ran.append("the other"))
    sandbox._endings.append(fails)
    with pytest.raises(OSError, match="the first"):
        sandbox.close()
    assert ran == ["the other"]
    assert not sandbox._endings
    listed = subprocess.run([sys.executable, "-m", "sandbox.cli.main", "ps"], capture_output=True, text=True).stdout
    assert sandbox.id not in listed


def test_a_check_of_the_project_that_fails_does_not_keep_the_others_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError("the first")

    subprocess.run(["git", "init", "-q", str(tmp_path / "project")], check=True)
    sandbox = Sandbox({"filesystem": {"root": str(tmp_path / "project")}})
    reserved = {one.name for one in (tmp_path / "project").iterdir()}
    assert ".vscode" in reserved
    monkeypatch.setattr(Repositories, "finish", fails)
    with pytest.raises(OSError, match="the first"):
        sandbox.close()
    assert [one.name for one in (tmp_path / "project").iterdir()] == [".git"]


def test_what_is_moved_aside_overwrites_nothing(person: Person) -> None:
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        sandbox.exec("git init -q a; cd a/.git/hooks; echo kept > pre-commit.from-sandbox; echo x > pre-commit")
    hooks = person.project / "a" / ".git" / "hooks"
    assert not (hooks / "pre-commit").exists()
    assert (hooks / "pre-commit.from-sandbox").read_text() == "kept\n"


@pytest.mark.parametrize(
    "script",
    [
        "git init -q a; mkdir -p b/.githooks; echo x > b/.githooks/pre-commit; ln -s ../b/.githooks a/.githooks",
        "git init -q a; mkdir b; echo x > b/pre-commit; ln -s ../b a/.githooks",
    ],
)
def test_hooks_that_git_finds_through_a_link_are_moved_aside(script: str, person: Person) -> None:
    """The person's own settings name the directory, in whatever work tree."""
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        assert sandbox.exec(script).ok
    assert not (person.project / "a" / ".githooks" / "pre-commit").exists()
    assert (person.project / "a" / ".githooks" / "pre-commit.from-sandbox").exists()


@pytest.mark.parametrize("path", ["../a/.git ", "../link/../a/.git"], ids=["a blank", "a link and two dots"])
def test_a_git_file_is_read_as_git_reads_it(path: str, person: Person, tmp_path: Path) -> None:
    """One that leads elsewhere than it seems to is moved aside."""
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        links = f"ln -s {tmp_path}/elsewhere/deep link; ln -s {tmp_path}/elsewhere 'a/.git '"
        assert sandbox.exec(f"git init -q a; {links}; mkdir n; printf 'gitdir: %s' '{path}' > n/.git").ok
    assert not (person.project / "n" / ".git").exists()
    assert (person.project / "n" / ".git.from-sandbox").exists()


@pytest.mark.parametrize("setting", ["branch.main.remote", "branch.main.pushRemote", "remote.pushDefault"])
def test_a_branchs_remote_cannot_name_a_helper_program(setting: str, person: Person) -> None:
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        sandbox.exec(f"git init -q a; git -C a config {setting} helper::x; git -C a config branch.o.remote origin")
    config = (person.project / "a" / ".git" / "config").read_text()
    assert "helper::x" not in config and "origin" in config


@pytest.mark.parametrize("setting", ["core.protectHFS", "core.protectNTFS"])
def test_gits_own_checks_of_names_stay_on(setting: str, person: Person) -> None:
    with Sandbox({"filesystem": {"root": str(person.project)}}) as sandbox:
        sandbox.exec(f"git init -q a; git -C a config {setting} false")
    assert "protect" not in (person.project / "a" / ".git" / "config").read_text().lower()


@pytest.mark.process_walls("a machine stands still while its changes are applied, and starts nothing")
def test_a_file_that_a_living_tenant_changes_after_it_was_judged_is_not_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path), "overlay": True}}) as sandbox:
        sandbox.exec("echo judged > file")

        def changed_meanwhile(root: int, path: str) -> int:
            sandbox.exec("echo another thing > file")
            return open_regular(root, path)

        monkeypatch.setattr("sandbox.vfs.apply.open_regular", changed_meanwhile)
        done = sandbox.apply()
    assert not (tmp_path / "file").exists()
    assert "file" in str(done)
