"""What a tenant leaves behind for the next run, or for a program of the host, to trip over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import ConfigError, Sandbox, SandboxError
from sandbox.audit.reading import verify
from sandbox.config.layers import resolve

SECRET = "hunter2-never-to-be-seen"


def within(project: Path, **filesystem: object) -> Sandbox:
    return Sandbox({"filesystem": {"root": str(project), **filesystem}})


def git(*words: str, at: Path) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(["git", *identity, *words], cwd=at, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def owners_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / ".keys").mkdir(parents=True)
    (home / ".keys" / "id").write_text(SECRET)
    monkeypatch.setenv("HOME", str(home))
    return home


# -- the next run's files


@pytest.mark.parametrize("activated", [False, True])
def test_a_planted_venv_shows_nothing_of_the_home(
    owners_home: Path, activated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = owners_home / "project"
    project.mkdir()
    if activated:
        monkeypatch.setenv("PATH", f"{project}/.venv/bin:{os.environ['PATH']}")
    with within(project) as sandbox:
        links = f"ln -s {owners_home}/.keys/id .venv/bin/python && ln -s {owners_home} .venv/bin/x"
        plant = f"mkdir -p .venv/bin && {links}"
        assert sandbox.exec(f"{plant} && echo 'home = {owners_home}/.keys' > .venv/pyvenv.cfg").exit_code == 0
    with within(project) as sandbox:
        assert sandbox.exec(f"cat {owners_home}/.keys/id; ls -A {owners_home}").stdout == "project\n"


def test_the_python_of_a_projects_venv_still_works(owners_home: Path) -> None:
    python = owners_home / "pythons" / "3.99"
    for name, content in (("bin/python3.99", "#!/bin/sh\necho it works\n"), ("lib/python3.99/os.py", "")):
        (python / name).parent.mkdir(parents=True)
        (python / name).write_text(content)
        (python / name).chmod(0o755)
    project = owners_home / "project"
    (project / ".venv/bin").mkdir(parents=True)
    (project / ".venv/bin/python").symlink_to(python / "bin/python3.99")
    (project / ".venv/pyvenv.cfg").write_text(f"home = {python}/bin\n")
    with within(project) as sandbox:
        assert sandbox.exec(".venv/bin/python").stdout == "it works\n"


# -- the sandbox's own


@pytest.mark.parametrize("key", ["root", "allow_read", "allow_write"])
@pytest.mark.parametrize("place", ["", "audit", "vms"])
def test_the_sandboxs_own_places_are_shown_to_nobody(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, place: str
) -> None:
    own = tmp_path / "own"
    (own / "audit").mkdir(parents=True)
    (own / "vms").mkdir()
    monkeypatch.setenv("SANDBOX_HOME", str(own))
    shown = str(own / place)
    with pytest.raises(ConfigError, match="sandbox's own"):
        within(**{"project": project} | {key: shown if key == "root" else [shown]})  # type: ignore[arg-type]


def test_covers_within_covers_are_no_obstacle(project: Path) -> None:
    (project / ".aws" / "cli").mkdir(parents=True)
    (project / ".aws" / "cli" / "key").write_text(SECRET)
    with within(project, blocked_patterns=[".aws/"], deny_read=[".aws/cli", ".aws/cli/key"]) as sandbox:
        assert sandbox.exec("cat .aws/cli/key || ls .aws").exit_code != 0


def test_a_record_kept_in_the_project_is_out_of_reach(project: Path) -> None:
    config = {"filesystem": {"root": str(project)}, "audit": {"directory": str(project / "logs" / "audit")}}
    with Sandbox(config) as sandbox:
        attack = "cat logs/audit/audit.jsonl; echo x >> logs/audit/audit.jsonl; mv logs old; mkdir -p logs/audit"
        assert "sandbox_lifecycle" not in sandbox.exec(attack).stdout
    assert verify(str(project / "logs" / "audit"))


def test_the_directory_above_the_sandboxs_home_cannot_be_replaced(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = project / "state" / "deep" / "sandbox"
    own.mkdir(parents=True)
    monkeypatch.setenv("SANDBOX_HOME", str(own))
    for moved in ("state/deep", "state"):
        with within(project) as sandbox:
            assert (
                sandbox.exec(f"mv {moved} x && mkdir -p {own} && echo 'mode: off' > {own}/config.yaml").exit_code != 0
            )
    assert not (own / "config.yaml").exists()


@pytest.mark.parametrize("home", [".", "here", None])
def test_a_project_is_never_taken_for_the_users_home(
    project: Path, home: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (project, project / "here", project / "~"):
        (place / ".sandbox").mkdir(parents=True)
        (place / ".sandbox" / "config.yaml").write_text("network: {allowed_hosts: ['*']}\n")
    monkeypatch.delenv("SANDBOX_HOME")
    monkeypatch.chdir(project)
    if home is None:
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user without an entry in passwd
    else:
        monkeypatch.setenv("HOME", home)
    with pytest.raises(SandboxError, match="SANDBOX_HOME"):
        resolve({}, project=".")


@pytest.mark.parametrize(("key", "path"), [("allow_read", "/proc"), ("allow_read", "/proc/1"), ("allow_write", "/sys")])
def test_the_hosts_processes_and_devices_are_no_further_paths(project: Path, key: str, path: str) -> None:
    with pytest.raises(ConfigError, match="contains the system"):
        within(project, **{key: [path]})


def test_a_link_cannot_ask_for_the_whole_machine(project: Path) -> None:
    (project / "link").symlink_to("/etc")
    with pytest.raises(ConfigError, match="link out of a directory that sandboxes write to"):
        within(project, allow_write=["link"])


# -- git of the host


@pytest.fixture
def repository(project: Path) -> Path:
    git("init", "-q", at=project)
    git("commit", "-q", "--allow-empty", "-m", "x", at=project)
    return project


REDIRECT = (
    "mkdir -p evil; cp -r .git/objects .git/refs .git/HEAD evil/;"
    "printf '[core]\\n\\trepositoryformatversion=0\\n\\tfsmonitor=touch ran;false\\n' > evil/config;"
)


def test_git_of_the_host_is_not_led_to_another_config(repository: Path) -> None:
    with within(repository) as sandbox:
        assert sandbox.exec(f"{REDIRECT} echo ../evil > .git/commondir").exit_code == 0
    git("status", at=repository)
    assert not (repository / "ran").exists()
    assert not (repository / ".git" / "commondir").exists()


def test_nor_while_the_sandbox_runs(repository: Path) -> None:
    with within(repository) as sandbox:
        sandbox._guard.wait_until_watching()
        taken = "while [ -e .git/commondir ]; do :; done"
        assert sandbox.exec(f"{REDIRECT} echo ../evil > .git/commondir; {taken}", timeout=60).exit_code == 0


def test_a_further_worktrees_repository_cannot_be_exchanged(repository: Path, tmp_path: Path) -> None:
    git("worktree", "add", "-q", str(tmp_path / "tree"), at=repository)
    (name,) = (repository / ".git" / "worktrees").iterdir()
    before = (name / "commondir").read_text()
    with within(repository) as sandbox:
        attack = f"echo /tmp > {name}/commondir || rm -f {name}/commondir || mv {name} x || mv .git/worktrees x"
        assert sandbox.exec(attack).exit_code != 0
    assert (name / "commondir").read_text() == before


def test_hooks_cannot_be_made_where_there_were_none(repository: Path) -> None:
    subprocess.run(["rm", "-r", str(repository / ".git" / "hooks")], check=True)
    with within(repository) as sandbox:
        assert sandbox.exec("mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit").exit_code != 0
        assert sandbox.exec("mv .git/hooks x").exit_code != 0


def test_hooks_behind_a_link_cannot_be_changed(repository: Path) -> None:
    subprocess.run(["rm", "-r", str(repository / ".git" / "hooks")], check=True)
    (repository / "tools" / "hooks").mkdir(parents=True)
    (repository / ".git" / "hooks").symlink_to("../tools/hooks")
    with within(repository) as sandbox:
        for attack in ("echo evil > tools/hooks/pre-commit", "mv tools x", "mv tools/hooks x"):
            assert sandbox.exec(attack).exit_code != 0


def test_a_repository_in_the_project_cannot_be_exchanged(repository: Path) -> None:
    (repository / "deep" / "library").mkdir(parents=True)
    git("init", "-q", at=repository / "deep" / "library")
    with within(repository) as sandbox:
        for moved in ("deep/library/.git", "deep/library", "deep"):
            assert sandbox.exec(f"mv {moved} x").exit_code != 0


def test_the_end_of_one_sandbox_opens_nothing_in_another(repository: Path) -> None:
    with within(repository) as second:
        with within(repository), within(repository):
            pass
        for name in (".vscode", ".claude", ".git/hooks"):
            assert second.exec(f"mkdir -p {name}; touch {name}/x").exit_code != 0
    assert not (repository / ".vscode").exists()
    with within(repository):
        third = within(repository)
    with third:
        assert third.exec("mkdir -p .vscode; touch .vscode/x").exit_code != 0
    assert not (repository / ".vscode").exists()


def test_nothing_is_taken_away_behind_a_planted_link(repository: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "commondir").write_text("../..\n")  # as in every further worktree's part of a repository
    with within(repository) as first:
        first.exec("mkdir deep; cp -r .git deep/")
        with within(repository):  # which looks after deep/.git at its end; the first tenant may still move it
            assert first.exec(f"mv deep/.git away; ln -s {victim} deep/.git").exit_code == 0
    assert (victim / "commondir").exists()


def test_the_end_does_not_look_at_what_lies_behind_a_planted_link(project: Path, tmp_path: Path) -> None:
    """It could be the whole disk, and none of it is the tenant's."""
    for tree in (project, tmp_path / "elsewhere"):
        (tree / "sub" / "deeper").mkdir(parents=True)
    (tmp_path / "elsewhere" / ".mcp.json").write_text("the person's own")
    (tmp_path / "elsewhere" / "sub" / "deeper" / ".envrc").write_text("the person's own")
    with within(project) as sandbox:
        link = f"mv sub old; ln -s {tmp_path}/elsewhere sub; cp -r old kept; rm -r old"
        assert sandbox.exec(f"{link}; mkdir new; echo > new/.mcp.json").ok
    assert sandbox._made == [f"{project}/new/.mcp.json"]
    assert not sandbox.notices


def test_nothing_is_made_behind_a_planted_link(project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (project / ".git").symlink_to(tmp_path / "elsewhere")
    with within(project):
        assert not list((tmp_path / "elsewhere").iterdir())


# -- programs and streams of the owner


def test_programs_planted_on_the_owners_path_are_not_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sandbox.registry.remove import remove_entry

    for name in ("bwrap", "chmod", "rm", "git", "python3", "sh"):
        (project / name).write_text(f"#!/bin/sh\n/usr/bin/touch {project}/ran\n")
        (project / name).chmod(0o755)
    monkeypatch.setenv("PATH", f".:{project}:{os.environ['PATH']}")
    monkeypatch.chdir(project)
    with within(project) as sandbox:
        assert sandbox.exec(["/bin/true"]).exit_code == 0
    deep = project / "entry"
    deep.mkdir()
    subprocess.run(  # deeper than any path may be: for coreutils
        [sys.executable, "-c", "import os\nfor _ in range(3000): os.mkdir('dd'); os.chdir('dd')"], cwd=deep, check=True
    )
    assert remove_entry(str(deep))
    assert not (project / "ran").exists()
    assert not [name for name in os.listdir(project) if name.startswith(".gone")]


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_closed_standard_stream_connects_a_tenant_to_nothing_on_the_host(
    project: Path, closed: tuple[int, ...]
) -> None:
    command = "cat; head -c 100 /dev/zero; head -c 100 /dev/zero >&2; ls -l /proc/self/fd | grep -c sandbox-home; true"
    script = f"""
import os, sys
for fd in {closed}: os.close(fd)
os.execv(sys.executable, [sys.executable, "-m", "sandbox.cli.main", "run", "--", "sh", "-c", {command!r}])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=project, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert 1 in closed or done.stdout == bytes(100) + b"0\n"
    assert 2 in closed or done.stderr == bytes(100)


@pytest.mark.parametrize("descriptor", [1, 2])
def test_what_others_wrote_to_the_same_pipe_cannot_be_read(project: Path, descriptor: int) -> None:
    reading, writing = os.pipe()
    os.write(writing, SECRET.encode())
    steal = (
        f"import os\ntry: open('got', 'wb').write(os.read(os.open('/proc/self/fd/{descriptor}', os.O_NONBLOCK), 99))"
        "\nexcept OSError: pass\nprint('out', flush=True); os.write(2, b'err'); print('put')"
    )
    command = [sys.executable, "-m", "sandbox.cli.main", "run", "--", "/usr/bin/python3", "-c", steal]
    done = subprocess.run(command, cwd=project, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing, check=False)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert (done.returncode, pipe.read()) == (0, f"{SECRET}out\nerrput\n")  # all of it, in order
    assert not (project / "got").read_bytes()


HOSTILE = """
network: {allowed_hosts: ["a\\e]0;x\\ab.com"]}
environment: {set: {PATH: "x\\e[31my"}}
filesystem: {root: "/\\e[32mq", blocked_patterns: ["no\\e[31mfile"]}
"""
AGENT = """---
name: "z\\e[31m"
description: "d\\e[32m"
---
"""


@pytest.mark.parametrize(
    "words",
    [
        *(["run", "--", "true"], ["run", "--detach", "--root", "no\x1b[2Jsuch", "--", "true"]),
        *(["run", "--", "no\x1b[2Jsuch"], ["run", "--root", "no\x1b[2Jsuch", "--", "true"]),
        *(["config"], ["config", "get", "filesystem.blocked_patterns"], ["why", "--path", "no\x1b[31mfile"]),
        *(["agent", "list"], ["agent", "run", "x\x1b]0;owned\x07"], ["log"], ["list"]),
    ],
)
def test_names_from_a_project_do_not_speak_to_the_terminal(project: Path, words: list[str]) -> None:
    (project / ".sandbox" / "agents").mkdir(parents=True)
    (project / ".sandbox" / "config.yaml").write_text(HOSTILE)
    (project / ".sandbox" / "agents" / "z.md").write_text(AGENT)
    done = subprocess.run(
        [sys.executable, "-m", "sandbox.cli.main", *words], cwd=project, capture_output=True, check=False
    )
    said = done.stdout + done.stderr
    assert not any(sign in said for sign in (b"\x1b", b"\x07", b"\x9b", b"Traceback"))


def test_settings_that_a_tenant_makes_in_a_home_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person = tmp_path / "person"
    (person / ".config").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(person))
    monkeypatch.setenv("SANDBOX_HOME", str(person / ".sandbox"))
    with Sandbox({"filesystem": {"root": str(person)}}) as sandbox:
        sandbox.exec("echo x > .inputrc; mkdir .kde .vscode; echo x > .profile; echo x > .gitignore; echo x > ordinary")
    told = {os.path.basename(path) for path in sandbox._made}
    assert told == {".inputrc", ".kde", ".profile", ".vscode"}


# -- a project that programs of the host act on


@pytest.mark.parametrize("place", [".claude", ".codex/prompts", ".git", ".git/hooks", ".vscode", ".Claude/skills/mine"])
def test_a_project_that_programs_of_the_host_act_on_is_read_only_with_a_notice(owners_home: Path, place: str) -> None:
    project = owners_home / place
    project.mkdir(parents=True)
    (project / "settings.json").write_text("mine")
    with within(project) as sandbox:
        assert sandbox.exec("echo '{}' > settings.json || mkdir hooks").exit_code != 0
        assert [one for one in sandbox.notices if "so the project is read-only" in str(one)]
    assert [one.name for one in project.iterdir()] == ["settings.json"]
    assert (project / "settings.json").read_text() == "mine"


def test_such_a_project_can_be_changed_in_an_overlay_or_where_the_person_names_it(owners_home: Path) -> None:
    project = owners_home / ".claude"
    project.mkdir()
    with within(project, overlay=True) as sandbox:
        assert sandbox.exec("echo x > settings.json").exit_code == 0
    with within(project, allow_write=["."]) as sandbox:
        assert sandbox.exec("echo x > made").exit_code == 0
    assert [one.name for one in project.iterdir()] == ["made"]


@pytest.mark.parametrize("place", [".claude/worktrees/a", ".cursor/worktrees/a/src"])
def test_a_worktree_that_an_agent_has_made_is_a_project_as_any_other(owners_home: Path, place: str) -> None:
    project = owners_home / place
    project.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(project).removesuffix("/src")], check=True)
    with within(project) as sandbox:
        assert sandbox.exec("echo x > made").exit_code == 0
    assert (project / "made").exists()
