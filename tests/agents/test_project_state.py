"""Directories of the project that an agent writes settings to (`.claude`): kept in the state, never in the project."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from sandbox.profiles.find import load, names
from tests.agents.conftest import Desk
from tests.agents.test_profiles import profile
from tests.agents.test_real_programs import installed
from tests.guards import test_late_masks as late_masks
from tests.guards.test_late_masks import Watched
from tests.sandboxes import program

pytestmark = pytest.mark.walls

ALLOW = """mkdir -p .tool && echo '{"allow": ["ls"]}' > .tool/new && mv .tool/new .tool/settings.local.json"""


@pytest.fixture
def desk(desk: Desk) -> Desk:
    profile(desk, "sh", keep=[".agent"], project_state=[".tool"])
    return desk


def sh(desk: Desk, script: str, *options: str) -> str:
    """What the script printed."""
    done = desk.run("sh", *options, "-c", script)
    assert done.returncode == 0, done.stderr
    return done.stdout


def layer(desk: Desk) -> Path:
    return desk.kept("sh").parent / "project-state/.tool"


@pytest.mark.parametrize("there", [True, False], ids=["there", "absent"])
@pytest.mark.parametrize("name", [name for name in names() if load(name).project_state])
def test_what_a_shipped_agent_writes_there_is_there_again_and_not_in_the_project(
    desk: Desk, name: str, there: bool
) -> None:
    [directory] = load(name).project_state
    if there:
        (desk.project / directory).mkdir()
        (desk.project / directory / "settings.json").write_text("{}")
    run = ["run", "--profile", name, "--", "sh", "-c"]
    done = desk.run(*run, f"echo mine > {directory}/new && mv {directory}/new {directory}/settings.local.json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    again = desk.run(
        *run, f"cat {directory}/settings.local.json; ls -A {directory}; git status --short {directory}/*.local*"
    )
    assert again.stdout.split() == ["mine", *(["settings.json"] if there else []), "settings.local.json"], again.stderr
    found = sorted(one.name for one in desk.project.rglob("*") if ".git/" not in f"{one}/")
    assert found == (sorted(["README.md", directory, "settings.json"]) if there else ["README.md"])


def test_the_agent_learns_that_its_changes_do_not_reach_the_project(desk: Desk) -> None:
    profile(desk, "sh", keep=[".agent"], project_state=[".tool"], instructions=".agent/AGENTS.md")
    assert "What you write to .tool/ of the project is kept for your next run" in sh(desk, "cat ~/.agent/AGENTS.md")


def test_what_is_there_can_be_changed_and_removed_inside_alone(desk: Desk) -> None:
    place = desk.project / ".tool/commands"
    place.mkdir(parents=True)
    (place / "one.md").write_text("one")
    (desk.project / ".tool/settings.json").write_text("theirs")
    sh(
        desk,
        "echo changed > .tool/settings.json; rm -r .tool/commands; mkdir .tool/commands; echo 2 > .tool/commands/two",
    )
    assert sh(desk, "cat .tool/settings.json; ls -A .tool/commands") == "changed\ntwo\n"
    assert (desk.project / ".tool/settings.json").read_text() == "theirs"
    assert [one.name for one in place.iterdir()] == ["one.md"]


def test_the_persons_later_edits_show_unless_the_agent_changed_that_file(desk: Desk) -> None:
    place = desk.project / ".tool"
    place.mkdir()
    (place / "a").write_text("old a\n")
    (place / "b").write_text("old b\n")
    sh(desk, "echo agent > .tool/b")
    for name in ("a", "b", "c"):
        (place / f"{name}.new").write_text(f"new {name}\n")
        (place / f"{name}.new").rename(place / name)
    assert sh(desk, "cat .tool/a .tool/b .tool/c") == "new a\nagent\nnew c\n"
    assert desk.run("profile", "forget", "sh").returncode == 0
    assert sh(desk, "cat .tool/b") == "new b\n"


def test_each_project_has_its_own_also_where_the_home_is_shared(desk: Desk, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    profile(desk, "sh", keep=[".agent"], project_state=[".tool"], per_project=False)
    sh(desk, ALLOW)
    assert desk.run("sh", "-c", "ls -A .tool", cwd=other).stdout == ""
    assert list(other.iterdir()) == []  # no repository: the place is made for the run all the same
    assert sh(desk, "ls .tool") == "settings.local.json\n"


def test_another_profile_and_a_plain_run_see_the_project_alone_and_frozen(desk: Desk) -> None:
    (desk.project / ".claude").mkdir()
    profile(desk, "sh", keep=[".agent"], project_state=[".claude"])
    sh(desk, "echo x > .claude/settings.local.json")
    for words in (["run", "--"], ["run", "--profile", "shell", "--"]):
        done = desk.run(*words, "sh", "-c", "ls -A .claude; echo x > .claude/y")
        assert done.stdout == ""
        assert done.returncode != 0
    assert list((desk.project / ".claude").iterdir()) == []


def test_a_blocked_file_beneath_stays_covered(desk: Desk) -> None:
    place = desk.project / ".tool"
    (place / "deep").mkdir(parents=True)
    (place / "secrets").mkdir()
    for name in (".env", "deep/key.pem", "secrets/x"):
        (place / name).write_text("SECRET")
    os.link(place / ".env", place / "innocent")
    desk.config["filesystem"] = {"deny_read": [".tool/secrets"]}
    desk.write()
    attack = """
        cat .tool/.env .tool/deep/key.pem .tool/innocent .tool/secrets/x
        mv .tool/.env .tool/e; cat .tool/e; ln .tool/.env .tool/l; cat .tool/l
        rm -rf .tool/.env; cat .tool/.env; mv .tool/deep .tool/moved; cat .tool/moved/key.pem
        cp -r .tool /tmp/copy; cat /tmp/copy/.env /tmp/copy/*/*
        chmod 777 .tool/.env .tool/secrets; cat .tool/.env .tool/secrets/x
        touch .tool/deep/key.pem; rm -rf .tool/secrets .tool/deep; cat .tool/*/* .tool/* .tool/.*
        exit 0"""
    for _ in range(2):
        assert "SECRET" not in sh(desk, attack)
    for found in layer(desk).rglob("*"):
        assert found.is_symlink() or not found.is_file() or b"SECRET" not in found.read_bytes(), found
    assert (place / ".env").read_text() == "SECRET"


@pytest.mark.parametrize("trap", ["ln -s /etc/hostname", "mkdir", "mkfifo", "touch"])
def test_what_a_tenant_leaves_where_a_blocked_file_will_be_neither_shows_it_nor_stops_the_next_run(
    desk: Desk, trap: str
) -> None:
    sh(desk, f"{trap} .tool/.env; {trap} .tool/sub; mkdir .tool/dir; {trap} .tool/dir/.env; {trap} .tool/.vscode")
    desk.config["filesystem"] = {"deny_read": [".tool/sub"]}
    desk.write()
    place = desk.project / ".tool"
    for name in ("sub", "dir", ".vscode"):
        (place / name).mkdir(parents=True)
    for name in (".env", "sub/.env", "dir/.env", ".vscode/settings.json"):
        (place / name).write_text("SECRET")
    assert "SECRET" not in sh(desk, "timeout 2 cat .tool/.env .tool/sub/.env .tool/dir/.env </dev/null; exit 0")
    assert (place / ".env").read_text() == "SECRET"


def test_a_blocked_file_that_appears_later_is_covered_too(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    place = desk.project / ".tool"
    place.mkdir()
    (place / ".env").write_text("old")
    monkeypatch.setattr(late_masks, "SECRET", "SECRET")
    with Watched(desk.project, state={"name": "sh", "project": [".tool"]}) as watched:
        (place / "key.pem").write_text("SECRET")
        assert watched.hidden(place / "key.pem")
        (place / "new").write_text("SECRET")
        (place / "new").rename(place / ".env")
        (place / "last.pem").write_text("SECRET")
        assert watched.hidden(place / "last.pem")
        assert "SECRET" not in watched.sandbox.exec("echo x > .tool/x; cat .tool/.env .tool/*").stdout


@pytest.mark.parametrize("there", [True, False], ids=["there", "absent"])
def test_it_can_be_written_for_as_long_as_the_agent_runs(desk: Desk, there: bool) -> None:
    place = desk.project / ".claude"
    if there:
        place.mkdir()
    with Watched(desk.project, state={"name": "sh", "project": [".claude"]}) as watched:
        for turn in ("first", "second"):
            done = watched.sandbox.exec(f"echo {turn} > .claude/settings.local.json; cat .claude/settings.local.json")
            assert done.stdout == f"{turn}\n", done.stderr
            (place / "settings.json").write_text("{}")  # the person's, beneath
            watched.sandbox._guard.catch_up(60)
    assert not (place / "settings.local.json").exists()


def test_links_of_a_tenant_lead_the_host_nowhere(desk: Desk, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("untouched")
    sh(desk, f"ln -s {victim} .tool/dir; ln -s {victim}/file .tool/file; ln -s / .tool/root; ln -s .. .tool/up")
    out = sh(desk, "echo x > .tool/dir/new; echo x > .tool/file; cat .tool/file; echo x > .tool/root/etc/made; exit 0")
    assert "untouched" not in out
    assert desk.run("profile", "forget", "sh").returncode == 0
    assert [one.name for one in victim.iterdir()] == ["file"]
    assert (victim / "file").read_text() == "untouched"
    assert not (desk.project / ".tool").exists()


def test_of_two_sandboxes_at_once_the_second_has_its_own_and_says_so(desk: Desk) -> None:
    sh(desk, "echo kept > .tool/kept")
    script = "echo one > .tool/one; echo ready; read go; ls -A .tool"
    with subprocess.Popen(
        [*program(), "sh", "-c", script], cwd=desk.project, env=desk.env, stdin=-1, stdout=-1, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        second = desk.run("sh", "-c", "ls -A .tool; echo two > .tool/two && cat .tool/two")
        assert second.stdout == "two\n", second.stderr
        assert "another sandbox uses what is kept for .tool/" in second.stderr
        out, _ = first.communicate("go\n")
    assert out == "kept\none\n"
    assert sh(desk, "ls -A .tool") == "kept\none\n"
    assert not (desk.project / ".tool").exists()


def test_without_an_overlay_it_is_frozen_with_a_notice(desk: Desk) -> None:
    (desk.project / ".tool").mkdir()
    sh(desk, "true")
    subprocess.run(["rm", "-rf", str(layer(desk) / "upper")], check=True)
    (layer(desk) / "upper").write_text("no directory")  # the kernel refuses such a layer
    done = desk.run("sh", "-c", "echo x > .tool/x")
    assert done.returncode != 0
    assert ".tool/ of the project cannot be written inside: no overlay is possible here" in done.stderr
    assert list((desk.project / ".tool").iterdir()) == []


@pytest.mark.parametrize("there", [True, False], ids=["there", "absent"])
def test_apply_does_not_carry_it_over(desk: Desk, there: bool) -> None:
    if there:
        (desk.project / ".tool").mkdir()
    sh(desk, ALLOW)
    assert "allow" in sh(desk, "cat .tool/settings.local.json; echo more > .tool/more; echo work > work", "--overlay")
    changes = desk.run("diff")
    assert "work" in changes.stdout, changes.stderr
    assert ".tool" not in changes.stdout
    done = desk.run("apply", "--yes")
    assert (desk.project / "work").exists(), done.stderr
    assert sorted(one.name for one in desk.project.iterdir() if one.name != ".git") == sorted(
        ["README.md", "work", *([".tool"] if there else [])]
    )
    assert not there or list((desk.project / ".tool").iterdir()) == []
    assert sh(desk, "ls -A .tool") == "more\nsettings.local.json\n"


def test_a_branch_does_not_carry_it_over(desk: Desk) -> None:
    (desk.project / ".tool").mkdir()
    (desk.project / ".tool/settings.json").write_text("theirs")
    git = ["git", "-c", "user.name=me", "-c", "user.email=me@example.com"]
    subprocess.run([*git, "add", "-A"], cwd=desk.project, check=True, env=desk.env)
    subprocess.run([*git, "commit", "-qm", "first"], cwd=desk.project, check=True, env=desk.env)
    done = desk.run(
        "sh", "--branch", "work", "--commit-rest", "-c", f"{ALLOW}; echo agent > .tool/settings.json; echo w > work"
    )
    assert done.returncode == 0, done.stderr
    changed = subprocess.run(
        ["git", "diff", "--name-only", "HEAD", "work"], cwd=desk.project, env=desk.env, capture_output=True, text=True
    )
    assert changed.stdout == "work\n", done.stderr
    assert sh(desk, "cat .tool/settings.json; ls .tool") == "agent\nsettings.json\nsettings.local.json\n"


def test_git_inside_adds_nothing_of_it(desk: Desk) -> None:
    (desk.project / ".tool").mkdir()
    (desk.project / ".tool/settings.json").write_text("theirs")
    sh(desk, f"{ALLOW}; git add -A")
    listed = subprocess.run(["git", "ls-files"], cwd=desk.project, env=desk.env, capture_output=True, text=True)
    assert listed.stdout == "README.md\n"


def test_where_the_project_is_read_only_it_can_be_written_anyway(desk: Desk) -> None:
    (desk.project / ".tool").mkdir()
    desk.config["filesystem"] = {"read_only": True}
    desk.write()
    sh(desk, "echo x > .tool/x; ! touch y")
    assert sh(desk, "ls .tool") == "x\n"
    assert list((desk.project / ".tool").iterdir()) == []


def test_a_link_in_the_project_is_left_alone(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (desk.project / ".tool").symlink_to(tmp_path / "elsewhere")
    assert desk.run("sh", "-c", "echo x > .tool/x").returncode != 0
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("wrong", [".git", ".GIT/", "src", "..", ".", "../x", ".a/b", "/etc", ""])
def test_only_a_dot_directory_of_the_project_can_be_named(desk: Desk, wrong: str) -> None:
    profile(desk, "sh", keep=[".agent"], project_state=[wrong])
    done = desk.run("sh", "-c", "true")
    assert done.returncode == 125
    assert "is not a dot directory of the project" in done.stderr


def test_a_project_cannot_name_any(desk: Desk) -> None:
    (desk.project / ".sandbox").mkdir()
    (desk.project / ".sandbox/config.yaml").write_text("state: {project: [.other]}")
    sh(desk, "! test -e .other")


def test_hooks_that_a_real_claude_finds_there_run_inside_alone(desk: Desk, tmp_path: Path) -> None:
    agent = installed(desk, "claude")
    desk.world.answer, desk.world.api = agent.answer(desk.project / "made.txt"), agent.host
    desk.env |= {agent.variable: agent.key}
    hook = {"type": "command", "command": "echo $SANDBOX_ID >> ~/.claude/ran"}
    settings = {"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}, "permissions": {"allow": ["Write", "Edit"]}}
    text = json.dumps(settings)
    write = f"cat > .claude/settings.local.json <<'EOF'\n{text}\nEOF"
    assert desk.run("run", "--profile", "claude", "--", "sh", "-c", write).returncode == 0
    done = desk.run("claude", "-p", "please write the file")
    assert done.returncode == 0, done.stderr
    assert (desk.project / "made.txt").exists(), "what was allowed there is allowed"
    assert (desk.kept("claude") / ".claude/ran").read_text().startswith("vm-")
    assert not (desk.project / ".claude").exists()
