"""Attempts on the guards, each one that has worked on somebody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.audit.reading import verify

SECRET = "hunter2-never-to-be-seen"


def within(project: Path, **filesystem: object) -> Sandbox:
    return Sandbox({"filesystem": {"root": str(project), **filesystem}})


def everything(sandbox: Sandbox) -> str:
    """All that a tenant can read of the project by any path, however it got there."""
    return sandbox.exec("cat $(find . -type f -o -type l) 2>/dev/null; grep -r . . 2>/dev/null; true").stdout


def test_a_link_to_a_blocked_file_shows_nothing(project: Path) -> None:
    (project / ".env").write_text(SECRET)
    (project / "innocent").symlink_to(".env")
    with within(project) as sandbox:
        assert sandbox.exec("cat innocent; ln -s .env mine; cat mine; cat ./././../project/.env").exit_code != 0
        assert SECRET not in everything(sandbox)


def test_a_blocked_name_that_is_a_link_hides_its_target(project: Path) -> None:
    (project / "config").mkdir()
    (project / "config" / "prod.txt").write_text(SECRET)
    (project / ".env").symlink_to("config/prod.txt")
    with within(project) as sandbox:
        assert SECRET not in sandbox.exec("cat .env config/prod.txt; rm .env; cat config/prod.txt").stdout
        assert SECRET not in everything(sandbox)


def test_a_hard_link_to_a_blocked_file_shows_nothing(project: Path) -> None:
    (project / ".env").write_text(SECRET)
    os.link(project / ".env", project / "notes.txt")
    with within(project) as sandbox:
        assert sandbox.exec("cat notes.txt").exit_code != 0
        assert sandbox.exec("ln .env mine && cat mine").exit_code != 0
        assert SECRET not in everything(sandbox)


@pytest.mark.parametrize("rule", ["a pattern", "deny_read"])
def test_a_hard_link_to_a_file_in_a_blocked_directory_shows_nothing(project: Path, rule: str) -> None:
    hidden = project / (".aws" if rule == "a pattern" else "private") / "deep"
    hidden.mkdir(parents=True)
    (hidden / "config").write_text(SECRET)
    (project / "sub" / "more").mkdir(parents=True)
    os.link(hidden / "config", project / "sub" / "more" / "notes.txt")
    with within(project, deny_read=["private"]) as sandbox:
        assert "Permission denied" in sandbox.exec("cat sub/more/notes.txt").stderr
        assert SECRET not in everything(sandbox)


def test_moving_what_is_around_a_blocked_file_does_not_uncover_it(project: Path) -> None:
    (project / "a" / "b").mkdir(parents=True)
    (project / "a" / "b" / ".env").write_text(SECRET)
    with within(project) as sandbox:
        moved = (
            "mv a c; cat c/b/.env; mv c/b/.env x; cp -r c d; cat d/b/.env; tar cf - c | strings; rm -rf c; cat c/b/.env"
        )
        assert SECRET not in sandbox.exec(moved).stdout
        assert SECRET not in everything(sandbox)
    assert (project / "c" / "b" / ".env").read_text() == SECRET


@pytest.mark.parametrize("alias", ["/proc/self/root", "/proc/self/cwd/..", "/proc/1/root", "/proc/self/task/self/root"])
def test_other_ways_to_the_same_file_lead_to_the_cover(project: Path, alias: str) -> None:
    (project / ".env").write_text(SECRET)
    with within(project) as sandbox:
        for path in (f"{alias}{project}/.env", f"{alias}/project/.env"):
            assert SECRET not in sandbox.exec(["cat", path]).stdout


def test_a_cover_cannot_be_taken_away_changed_or_made_readable(project: Path) -> None:
    (project / ".env").write_text(SECRET)
    (project / ".aws").mkdir()
    (project / ".aws" / "credentials").write_text(SECRET)
    with within(project) as sandbox:
        for attempt in (
            "umount .env", "umount -l .env", "chmod 777 .env", "rm -f .env", "mv .env x", "echo x > .env",
            "chmod 777 .aws; ls .aws", "rmdir .aws", "mount --bind /tmp .aws", "unshare -rm umount .env",
            "dd if=.env", "cp .env /tmp/x",
        ):  # fmt: skip
            sandbox.exec(f"{attempt}; cat .env .aws/credentials")
            assert SECRET not in sandbox.exec("cat .env .aws/credentials /tmp/x").stdout, attempt
    assert (project / ".env").read_text() == SECRET
    assert (project / ".aws" / "credentials").read_text() == SECRET


def test_a_closed_directory_hides_what_is_in_it_even_from_its_owner(project: Path) -> None:
    (project / "closed").mkdir()
    (project / "closed" / ".env").write_text(SECRET)
    (project / "closed").chmod(0)
    try:
        with within(project) as sandbox:
            assert SECRET not in sandbox.exec("chmod 700 closed; cat closed/.env").stdout
    finally:
        (project / "closed").chmod(0o700)


def test_case_and_unicode_variants_are_covered(project: Path) -> None:
    names = [".ENV", ".Env.Local", "SERVER.pem", "．env", ".e\u200bnv", "MY-SECRET.txt"]
    for name in names:
        (project / name).write_text(SECRET)
    with within(project) as sandbox:
        for name in names:
            assert sandbox.exec(["cat", name]).exit_code != 0, name


def test_names_made_to_break_us_do_not(project: Path) -> None:
    names = [
        b"a\nb.pem",
        b"\xff\xfe.key",
        b"-rf.pem",
        b"$(id).key",
        b"x" * 240 + b".pem",
        "秘密 secret".encode(),
        b"\x1b[31m.pem",
    ]
    for name in names:
        with open(os.fsencode(project) + b"/" + name, "w") as file:
            file.write(SECRET)
    with within(project) as sandbox:
        assert SECRET not in everything(sandbox)
        for name in names:
            assert sandbox.exec([b"cat", b"--", b"./" + name]).exit_code != 0, name


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit", ".git/config", ".gitmodules", ".bashrc", ".mcp.json", ".vscode/tasks.json",
        ".idea/workspace.xml", ".claude/commands/x.md", ".claude/agents/x.md", ".claude/settings.json",
        ".sandbox/config.yaml", ".uds/config.yaml", ".envrc.d/../.envrc",
    ],
)  # fmt: skip
def test_what_the_host_would_run_later_cannot_be_written(project: Path, path: str) -> None:
    place = Path(os.path.normpath(project / path))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("{}" if place.suffix == ".json" else "# as it was\n")
    before = place.read_text()
    with within(project) as sandbox:
        for attempt in (
            f"echo evil > {place}", f"rm -f {place}", f"mv {place} x", f"echo evil > y; mv y {place}",
            f"ln -sf /tmp/evil {place}", f"rm -rf {place.parent}",
            f"mv {place.parent} elsewhere; mkdir -p {place.parent}; echo evil > {place}",
            f"chmod 777 {place}; echo evil >> {place}", f"truncate -s 0 {place}",
        ):  # fmt: skip
            sandbox.exec(attempt)
            if place.parent != project or "rm -rf" not in attempt:
                assert place.read_text() == before, attempt
    assert place.read_text() == before


@pytest.mark.parametrize(
    "path",
    [".vscode/tasks.json", ".idea/x.xml", ".claude/settings.json", ".claude/agents/x.md", ".cursor/mcp.json",
     ".git/hooks/pre-commit"],
)  # fmt: skip
def test_what_the_host_would_run_later_cannot_be_made_either(project: Path, path: str) -> None:
    (project / ".git").mkdir()
    with within(project) as sandbox:
        parent = os.path.dirname(path)
        for attempt in (
            f"mkdir -p {parent}; echo evil > {path}", f"rmdir {parent}; mkdir -p {parent}; echo evil > {path}",
            f"mv {parent} x; mkdir {parent}; echo evil > {path}", f"ln -sfn /tmp {parent}; echo evil > {path}",
            f"mkdir y; echo evil > y/z; mv -T y {parent}",
        ):  # fmt: skip
            sandbox.exec(attempt)
            assert not (project / path).exists(), attempt
        assert sandbox.exec("git init -q elsewhere && git -C elsewhere status --short").exit_code == 0
    assert not (project / parent).exists()


def test_a_new_file_that_programs_act_on_is_reported(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sandbox", "run", "--", "sh", "-c", "echo '{}' > .mcp.json"],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert f"{project}/.mcp.json was created or changed while the sandbox ran" in done.stderr
    assert os.listdir(project) == [".mcp.json"]


def test_nothing_is_left_in_a_repository_and_git_sees_nothing(project: Path) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=project, check=True)
    with within(project) as sandbox:
        assert sandbox.exec("git status --short --ignored").stdout == ""
    assert os.listdir(project) == [".git"]
    assert sandbox._made == []


def test_outside_a_repository_nothing_is_made_and_what_appears_is_reported(project: Path) -> None:
    with within(project) as sandbox:
        assert sandbox.exec("ls -A").stdout == ""
        sandbox.exec("git init -q . && mkdir .vscode")
    assert sandbox._made == [f"{project}/.git", f"{project}/.vscode", f"{project}/.git/hooks"]


def test_a_project_in_var_tmp_works() -> None:
    import tempfile

    with tempfile.TemporaryDirectory(dir="/var/tmp") as place, within(Path(place)) as sandbox:
        assert sandbox.exec("touch new && pwd").stdout == f"{place}\n"
        assert os.listdir(place) == ["new"]


def test_git_still_works_inside(project: Path) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "init", "-q", "-b", "fix-secret-scan", "."], cwd=project, check=True)
    (project / "file").write_text("1")
    subprocess.run([*git, "add", "."], cwd=project, check=True)
    subprocess.run([*git, "commit", "-qm", "one"], cwd=project, check=True)
    with within(project) as sandbox:
        worked = sandbox.exec(
            "echo 2 > file && git status --short && git -c user.name=y -c user.email=y@example.org commit -qam two"
            " && git log --oneline && git switch -qc other && git stash list && git gc -q"
        )
        assert worked.exit_code == 0, worked.stderr
        assert "two" in worked.stdout
        assert sandbox.exec("git config core.fsmonitor /tmp/evil").exit_code != 0
    log = subprocess.run(["git", "log", "--format=%s"], cwd=project, capture_output=True, text=True, check=True)
    assert log.stdout.split() == ["two", "one"]


def test_a_worktrees_git_file_cannot_be_pointed_elsewhere(project: Path) -> None:
    (project / ".git").write_text("gitdir: /nowhere\n")
    with within(project) as sandbox:
        sandbox.exec("echo 'gitdir: ./evil' > .git; rm -f .git; mv .git x; ln -sf evil .git")
    assert (project / ".git").read_text() == "gitdir: /nowhere\n"


def test_denied_paths_hold_for_reading_and_writing(project: Path) -> None:
    for name in ("data/private/x", "data/public/x", "docs/x"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(SECRET if "private" in name else "fine")
    with within(project, deny_read=["data"], allow_read=["data/public"], deny_write=["docs"]) as sandbox:
        assert sandbox.exec("cat data/public/x docs/x").stdout == "finefine"
        assert sandbox.exec("cat data/private/x").exit_code != 0
        assert sandbox.exec("echo x > docs/x").exit_code != 0
        assert sandbox.exec("mv docs elsewhere").exit_code != 0
    assert (project / "docs" / "x").read_text() == "fine"


def test_the_record_is_out_of_reach_even_when_the_project_is_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / ".sandbox"))
    with within(tmp_path) as sandbox:
        sandbox.exec(
            "cat .sandbox/audit/audit.jsonl; rm -rf .sandbox; mv .sandbox x; echo forged >> .sandbox/audit/audit.jsonl"
        )
        assert sandbox.exec("ls .sandbox").exit_code != 0
    assert verify(str(tmp_path / ".sandbox" / "audit")).count >= 4


def test_no_secret_is_in_any_byte_we_wrote(project: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home).mkdir()
    (home / "config.yaml").write_text(
        f"network:\n  allowed_hosts: [a.org]\n  secrets:\n    K: {{value: {SECRET}, hosts: [a.org]}}\n"
        f"environment:\n  set: {{PLAIN: visible}}\n"
    )
    (project / ".env").write_text(SECRET)
    given = {**os.environ, "SANDBOX_HOME": str(home), "MY_API_KEY": SECRET, "INNOCENT": f"sk-{SECRET}"}
    sandbox = [sys.executable, "-m", "sandbox"]
    shown = ""
    for words in (
        ["run", "--", "sh", "-c", f": {SECRET}; env; cat .env; exit 3"],
        ["run", "--env", "MY_API_KEY", "--", "true"],
        ["config", "show"], ["config", "list", "--json"], ["config", "get", "network.secrets"], ["log"],
        ["log", "--json"],
        ["why", "--env", "MY_API_KEY"], ["why", "--path", ".env"],
    ):  # fmt: skip
        done = subprocess.run([*sandbox, *words], cwd=project, env=given, capture_output=True, text=True, check=False)
        shown += done.stdout + done.stderr
    call = f'{{"tool_name": "Bash", "tool_input": {{"command": "cat .env {SECRET}"}}, "cwd": "{project}"}}'
    done = subprocess.run(
        [*sandbox, "hook", "pre-tool-use"],
        cwd=project,
        env=given,
        input=call,
        capture_output=True,
        text=True,
        check=False,
    )
    shown += done.stdout + done.stderr
    assert SECRET not in shown
    for directory, _, names in os.walk(home):
        for name in names:
            if name != "config.yaml":
                assert SECRET.encode() not in Path(directory, name).read_bytes(), name
