"""`--branch`: commits from an overlay arrive on a branch of the person's repository, and nothing else changes there."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.errors import SandboxError
from tests.branches.repositories import git, plant_hooks, repository, sandbox, snapshot

pytestmark = pytest.mark.walls

COMMIT = "echo more >> a; echo b > b; git add -A && git commit -q -m 'from inside'"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    return repository(tmp_path / "project")


def kept(home: Path) -> list[str]:
    """The overlays that are left."""
    return [path.parent.name for path in (home / "vms").glob("vm-*/overlay")]


def test_commits_arrive_on_the_branch_and_nothing_else_changes(project: Path, tmp_path: Path) -> None:
    plant_hooks(project, tmp_path / "told")
    (project / "a").write_text("changed by the person\n")
    before = snapshot(project, "fix-1")
    done = sandbox(project, "run", "--branch", "fix-1", "--", "sh", "-c", "git symbolic-ref HEAD; " + COMMIT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "refs/heads/fix-1\n"
    assert "new commits on fix-1: 1; review them with `git diff main...fix-1`" in done.stderr
    assert git(project, "log", "--format=%an %s", "fix-1") == "Person from inside\nPerson first"
    assert git(project, "diff", "--name-only", "main...fix-1") == "a\nb"
    assert snapshot(project, "fix-1") == before
    assert not (tmp_path / "told").exists()
    assert git(project, "fsck", "--strict") == ""
    assert kept(tmp_path / "home") == []


def test_commits_made_inside_are_unsigned_since_the_key_is_not_inside(project: Path) -> None:
    git(project, "config", "commit.gpgSign", "true")
    git(project, "config", "tag.gpgSign", "true")
    git(project, "config", "gpg.format", "ssh")
    git(project, "config", "user.signingKey", "/nonexistent/key.pub")
    before = snapshot(project, "fix-1")
    done = sandbox(project, "run", "--branch", "fix-1", "--commit-rest", "--", "sh", "-c", COMMIT + " && echo c > c")
    assert done.returncode == 0, done.stderr
    assert git(project, "log", "--format=%s %G?", "fix-1").splitlines()[1:] == ["from inside N", "first N"]
    assert git(project, "ls-tree", "--name-only", "fix-1").splitlines() == ["a", "b", "c", "sub"]
    assert snapshot(project, "fix-1") == before


def test_an_existing_branch_is_continued_with_its_own_files(project: Path) -> None:
    git(project, "checkout", "-q", "-b", "fix-1")
    (project / "only-there").write_text("there\n")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "second")
    git(project, "checkout", "-q", "main")
    (project / "a").write_text("changed by the person\n")
    before = snapshot(project, "fix-1")
    done = sandbox(project, "run", "--branch", "fix-1", "--", "sh", "-c", "cat a only-there; git status -s; " + COMMIT)
    assert (done.returncode, done.stdout) == (0, "one\nthere\n"), done.stderr
    assert git(project, "log", "--format=%s", "fix-1") == "from inside\nsecond\nfirst"
    assert snapshot(project, "fix-1") == before


def test_uncommitted_changes_stay_in_the_overlay_until_somebody_asks(project: Path, tmp_path: Path) -> None:
    (project / "mine").write_text("the person's own, not added\n")
    done = sandbox(project, "run", "--branch", "fix-1", "--", "sh", "-c", COMMIT + "; echo c > c; rm sub/x")
    assert "files with changes that are not committed: 2" in done.stderr
    [identity] = kept(tmp_path / "home")
    assert git(project, "ls-tree", "-r", "--name-only", "fix-1") == "a\nb\nmine\nsub/x"
    later = sandbox(project, "apply", "--commit-rest", identity)
    assert later.returncode == 0, later.stderr
    assert git(project, "ls-tree", "-r", "--name-only", "fix-1") == "a\nb\nc\nmine"
    assert git(project, "log", "-1", "--format=%s", "fix-1") == f"Uncommitted changes of {identity}"
    assert (kept(tmp_path / "home"), sorted(os.listdir(project))) == ([], [".git", "a", "mine", "sub"])


def test_commit_rest_takes_what_the_sandbox_changed_and_not_the_persons_own_changes(project: Path) -> None:
    (project / "mine").write_text("the person's own, not added\n")
    (project / "a").write_text("the person's own change\n")
    (project / ".gitignore").write_text("ignored\n")
    git(project, "add", ".gitignore")
    git(project, "commit", "-q", "-m", "ignore")
    script = "echo new > new; echo ignored > ignored; mkdir d; echo 1 > 'd/with [a] *strange* name'"
    done = sandbox(project, "run", "--branch", "fix-1", "--commit-rest", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert git(project, "diff", "--name-only", "main...fix-1") == "d/with [a] *strange* name\nnew"


def test_a_run_without_commits_makes_no_branch_and_leaves_nothing(project: Path, tmp_path: Path) -> None:
    done = sandbox(project, "run", "--branch", "fix-1", "--", "git", "status")
    assert "no new commits for fix-1" in done.stderr
    assert git(project, "branch", "--format=%(refname)") == "refs/heads/main"
    assert kept(tmp_path / "home") == []


def test_the_status_is_the_commands_and_its_commits_arrive_also_when_it_fails(project: Path) -> None:
    assert sandbox(project, "run", "--branch", "fix-1", "--", "sh", "-c", COMMIT + "; exit 7").returncode == 7
    assert git(project, "rev-list", "--count", "main..fix-1") == "1"


def test_json_shows_the_branch(project: Path) -> None:
    done = sandbox(project, "run", "--json", "--branch", "fix-1", "--", "sh", "-c", COMMIT + "; echo c > c")
    wanted = {"name": "fix-1", "commits": 1, "uncommitted": 1, "elsewhere": False, "error": None}
    assert json.loads(done.stdout)["branch"] == wanted


def test_a_detached_run_brings_its_commits_at_its_end(project: Path) -> None:
    script = "mkfifo /tmp/go 2>&-; cat /tmp/go; " + COMMIT
    identity = sandbox(project, "run", "-d", "--branch", "fix-1", "--", "sh", "-c", script).stdout.strip()
    owner = os.pidfd_open(json.loads(sandbox(project, "get", identity).stdout)["pid"])
    sandbox(project, "exec", identity, "sh", "-c", "mkfifo /tmp/go 2>&-; echo go > /tmp/go")
    select.select([owner], [], [])
    os.close(owner)
    log = sandbox(project, "logs", identity)
    assert "new commits on fix-1: 1" in log.stdout + log.stderr
    assert git(project, "rev-list", "--count", "main..fix-1") == "1"


@pytest.mark.parametrize("name", ["main", "-x", "a..b", "HEAD", "@", "refs/heads/x", "x.lock", "a b", "", "x\n", "a/"])
def test_names_that_cannot_be_a_target_are_refused_before_anything_runs(
    project: Path, tmp_path: Path, name: str
) -> None:
    done = sandbox(project, "run", f"--branch={name}", "--", "touch", "ran")
    assert (done.returncode, kept(tmp_path / "home")) == (125, [])
    assert "Traceback" not in done.stderr
    assert git(project, "for-each-ref", "--format=%(refname)") == "refs/heads/main"


def test_a_branch_of_another_work_tree_is_refused(project: Path, tmp_path: Path) -> None:
    git(project, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other")
    done = sandbox(project, "run", "--branch", "other", "--", "true")
    assert done.returncode == 125
    assert f"the branch other is checked out in {tmp_path}/tree" in done.stderr


def test_the_default_branch_of_a_remote_needs_force(project: Path) -> None:
    git(project, "branch", "trunk")
    git(project, "update-ref", "refs/remotes/origin/trunk", "main")
    git(project, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    done = sandbox(project, "run", "--branch", "trunk", "--", "sh", "-c", COMMIT)
    assert done.returncode == 125
    assert "trunk is the default branch of a remote" in done.stderr
    assert git(project, "rev-parse", "trunk") == git(project, "rev-parse", "main")
    assert sandbox(project, "apply", "--force").returncode == 0
    assert git(project, "rev-list", "--count", "main..trunk") == "1"


def test_a_branch_that_moved_meanwhile_is_not_overwritten_without_force(project: Path, tmp_path: Path) -> None:
    with Sandbox({"filesystem": {"root": str(project), "branch": "fix-1"}}) as inside:
        inside.exec(COMMIT, check=True)
    other = git(project, "commit-tree", "-p", "main", "-m", "the person's", "main^{tree}")
    git(project, "update-ref", "refs/heads/fix-1", other)
    refused = sandbox(project, "apply", inside.id)
    assert refused.returncode == 125
    assert "do not continue fix-1" in refused.stderr
    assert git(project, "rev-parse", "fix-1") == other
    assert sandbox(project, "apply", "--branch", "fix-2", inside.id).returncode == 0
    assert git(project, "log", "--format=%s", "fix-2") == "from inside\nfirst"


def test_force_overwrites_a_branch_that_moved(project: Path) -> None:
    with Sandbox({"filesystem": {"root": str(project), "branch": "fix-1"}}) as inside:
        inside.exec(COMMIT, check=True)
    git(project, "update-ref", "refs/heads/fix-1", git(project, "commit-tree", "-m", "other", "main^{tree}"))
    assert sandbox(project, "apply", "--force", inside.id).returncode == 0
    assert git(project, "log", "--format=%s", "fix-1") == "from inside\nfirst"


def test_history_that_was_rewritten_inside_needs_force(project: Path) -> None:
    done = sandbox(project, "run", "--branch", "fix-1", "--", "git", "commit", "-q", "--amend", "-m", "rewritten")
    assert done.returncode == 125
    assert "do not continue fix-1" in done.stderr
    assert git(project, "branch", "--list", "fix-1") == ""


def test_commits_elsewhere_are_reported_and_stay(project: Path, tmp_path: Path) -> None:
    done = sandbox(project, "run", "--branch", "fix-1", "--", "sh", "-c", "git checkout -q -b own; " + COMMIT)
    assert "HEAD inside was not on fix-1" in done.stderr
    assert git(project, "branch", "--format=%(refname:short)") == "main"
    assert len(kept(tmp_path / "home")) == 1


def test_a_profiles_program_works_on_a_branch_too(project: Path) -> None:
    done = sandbox(project, "shell", "--branch", "fix-1", "-c", COMMIT)
    assert done.returncode == 0, done.stderr
    assert git(project, "log", "--format=%s", "fix-1") == "from inside\nfirst"


# -- where


def test_in_a_subdirectory_the_whole_work_tree_is_there_and_the_command_starts_where_the_person_is(
    project: Path,
) -> None:
    script = "pwd; git status -s; cat ../a; echo y > y; git add -A; git commit -q -m inside"
    done = sandbox(project / "sub", "run", "--branch", "fix-1", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, f"{project}/sub\none\n"), done.stderr
    assert git(project, "diff", "--name-only", "main...fix-1") == "sub/y"


def test_a_subdirectory_that_is_named_as_root_is_refused(project: Path) -> None:
    with pytest.raises(SandboxError, match="is a directory in the repository"):
        Sandbox({"filesystem": {"root": str(project / "sub"), "branch": "fix-1"}})


def test_in_a_further_work_tree(project: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    git(project, "worktree", "add", "-q", str(tree), "-b", "tree")
    before = snapshot(project, "fix-1"), snapshot(tree, "fix-1")
    done = sandbox(tree, "run", "--branch", "fix-1", "--", "sh", "-c", COMMIT + "; git symbolic-ref HEAD")
    assert (done.returncode, done.stdout) == (0, "refs/heads/fix-1\n"), done.stderr
    assert "git diff tree...fix-1" in done.stderr
    assert git(project, "log", "--format=%s", "fix-1") == "from inside\nfirst"
    assert (snapshot(project, "fix-1"), snapshot(tree, "fix-1")) == before
    again = sandbox(
        tree, "run", "--branch", "fix-1", "--", "sh", "-c", "cat b; echo c > c; git add c; git commit -qm c"
    )
    assert (again.returncode, again.stdout) == (0, "b\n"), again.stderr


def test_with_a_detached_head(project: Path) -> None:
    git(project, "checkout", "-q", "--detach")
    done = sandbox(project, "run", "--branch", "fix-1", "--", "sh", "-c", COMMIT)
    start = git(project, "rev-parse", "main")[:12]
    assert f"git diff {start}...fix-1" in done.stderr


def test_what_cannot_be_done_is_refused_by_name(project: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    apart = tmp_path / "apart"
    apart.mkdir()
    git(apart, "init", "-q", "--separate-git-dir", str(tmp_path / "apart.git"))
    git(tmp_path, "clone", "-q", "--shared", str(project), "shared")
    git(tmp_path, "clone", "-q", "--bare", str(project), "bare")
    for where, why in (
        (plain, "is not the work tree of a git repository"),
        (empty, "has no commit yet"),
        (apart, "--separate-git-dir"),
        (tmp_path / "shared", "borrows objects"),
        (tmp_path / "bare", "is not the work tree of a git repository"),
    ):
        done = sandbox(where, "run", "--branch", "x", "--", "true")
        assert (done.returncode, why in done.stderr) == (125, True), (where, done.stderr)


# -- blocked files


def test_blocked_files_stay_blocked_and_are_in_no_commit(project: Path, tmp_path: Path) -> None:
    (project / ".env").write_text("PASSWORD=hunter2\n")
    done = sandbox(
        project, "run", "--branch", "fix-1", "--commit-rest", "--", "sh", "-c", "cat .env; " + COMMIT + "; echo c > c"
    )
    assert "hunter2" not in done.stdout
    assert git(project, "ls-tree", "--name-only", "fix-1") == "a\nb\nc\nsub"
    assert (project / ".env").read_text() == "PASSWORD=hunter2\n"


def test_a_blocked_file_that_is_tracked_does_not_get_in_the_way_and_stays_as_it_is(project: Path) -> None:
    (project / ".env").write_text("PASSWORD=old\n")
    git(project, "add", "-f", ".env")
    git(project, "commit", "-q", "-m", "env")
    git(project, "branch", "fix-2", "main~1")
    git(project, "branch", "fix-1")
    (project / ".env").write_text("PASSWORD=hunter2\n")
    for name in ("fix-1", "new"):
        done = sandbox(
            project, "run", "--branch", name, "--", "sh", "-c", "git status -s; " + COMMIT + "; git commit -qam x"
        )
        assert done.stdout == "On branch " + name + "\nnothing to commit, working tree clean\n" or not done.stdout
        assert git(project, "show", f"{name}:.env") == "PASSWORD=old"
        assert git(project, "diff", "--name-only", f"main...{name}") == "a\nb", done.stderr


# -- several


def test_several_agents_work_on_one_repository_each_on_its_own_branch(project: Path) -> None:
    names = [f"fix-{number}" for number in range(3)]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "sandbox", "run", "--branch", name, "--", "sh", "-c",
             f"echo {name} > {name}; read go; " + COMMIT],
            cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for name in names
    ]  # fmt: skip
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in running:
        _out, said = one.communicate()
        assert one.returncode == 0, said
    for name in names:
        assert git(project, "diff", "--name-only", f"main...{name}") == f"a\nb\n{name}"
    assert git(project, "fsck", "--strict") == ""


def test_a_second_sandbox_on_the_same_branch_is_refused_while_the_first_one_lives(project: Path) -> None:
    asked = {"filesystem": {"root": str(project), "branch": "fix-1"}}
    with Sandbox(asked) as first:
        with pytest.raises(SandboxError, match="another sandbox works on the branch fix-1"):
            Sandbox(asked)
        first.exec(COMMIT, check=True)
    sandbox(project, "apply", first.id)
    del first
    with Sandbox(asked) as second:
        assert second.exec("cat b").stdout == "b\n"


def test_a_killed_owner_loses_nothing(project: Path, tmp_path: Path) -> None:
    script = COMMIT + "; echo c > c; echo ready; read forever"
    owner = subprocess.Popen(
        [sys.executable, "-m", "sandbox", "run", "--branch", "fix-1", "--", "sh", "-c", script],
        cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert git(project, "branch", "--list", "fix-1") == ""
    [identity] = kept(tmp_path / "home")
    done = sandbox(project, "apply", "--commit-rest", identity)
    assert done.returncode == 0, done.stderr
    assert git(project, "diff", "--name-only", "main...fix-1") == "a\nb\nc"
    assert kept(tmp_path / "home") == []


def test_a_running_sandbox_is_not_brought_over(project: Path) -> None:
    with Sandbox({"filesystem": {"root": str(project), "branch": "fix-1"}}) as inside:
        done = sandbox(project, "apply", inside.id)
        assert (done.returncode, "is running" in done.stderr) == (125, True)


def test_the_diff_of_a_branch_shows_files_and_nothing_of_git(project: Path) -> None:
    with Sandbox({"filesystem": {"root": str(project), "branch": "fix-1"}}) as inside:
        inside.exec(COMMIT, check=True)
        assert sorted(change.path for change in inside.changes()) == ["a", "b"]


def test_options_that_need_a_branch_say_so(project: Path) -> None:
    done = sandbox(project, "run", "--commit-rest", "--", "true")
    assert (done.returncode, "--branch" in done.stderr) == (125, True)


def test_a_projects_own_file_cannot_choose_a_branch(project: Path) -> None:
    (project / ".sandbox").mkdir()
    (project / ".sandbox/config.yaml").write_text("filesystem:\n  branch: evil\n")
    done = sandbox(project, "run", "--", "git", "symbolic-ref", "HEAD")
    assert done.stdout == "refs/heads/main\n"


# -- what is not on the branch


@pytest.mark.parametrize(
    "script",
    [
        f"git checkout -q -b own; {COMMIT}; git checkout -q fix-1",
        "echo more >> a; git stash -q",
        f"{COMMIT}; git tag -a -m 'a tag' v1",
    ],
    ids=["branch", "stash", "tag"],
)
def test_what_is_committed_beside_the_branch_is_reported_and_stays(project: Path, tmp_path: Path, script: str) -> None:
    done = sandbox(project, "run", "--branch", "fix-1", "--", "sh", "-ec", script)
    assert done.returncode == 0
    assert "not everything that was committed inside is on fix-1" in done.stderr
    assert len(kept(tmp_path / "home")) == 1


def test_a_commit_in_a_submodule_stays_in_the_overlay(project: Path, tmp_path: Path) -> None:
    library = repository(tmp_path / "library")
    git(project, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "lib")
    git(project, "commit", "-q", "-m", "a library")
    looked = sandbox(project, "run", "--branch", "fix-1", "--", "git", "status")
    assert (looked.returncode, kept(tmp_path / "home")) == (0, [])
    script = (
        "cd lib; echo more >> a; git -c user.name=x -c user.email=x commit -q -a -m in; cd ..; git commit -q -a -m bump"
    )
    done = sandbox(project, "run", "--branch", "fix-1", "--", "sh", "-ec", script)
    assert "new commits on fix-1: 1" in done.stderr
    assert "submodules stay in the overlay" in done.stderr
    assert len(kept(tmp_path / "home")) == 1


def test_a_branch_that_is_another_name_of_one_is_refused(project: Path, tmp_path: Path) -> None:
    git(project, "symbolic-ref", "refs/heads/alias", "refs/heads/main")
    before = git(project, "rev-parse", "main")
    done = sandbox(project, "run", "--branch", "alias", "--", "sh", "-c", COMMIT)
    assert done.returncode == 125
    assert "alias is another name of main" in done.stderr
    assert git(project, "rev-parse", "main") == before
