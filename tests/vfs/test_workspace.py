"""An overlay project: what was changed is shown, carried over when asked, and nothing leads out of either side."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import AsyncSandbox, Sandbox
from sandbox.errors import NotFound, SandboxError
from sandbox.vfs.changes import Change
from sandbox.vfs.review import printable, summary, unified
from sandbox.vfs.workspace import Workspace
from sandbox.vfs.workspace_layers import place_of

pytestmark = pytest.mark.walls


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    (project / "a").write_text("one\n")
    (project / "b").write_text("two\n")
    (project / "sub/x").write_text("x\n")
    (project / "link").symlink_to("a")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/victim").write_text("untouched")
    return project


@pytest.fixture
def sandbox(project: Path) -> Iterator[Sandbox]:
    with Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox:
        yield sandbox


def do(sandbox: Sandbox, script: str) -> dict[str, Change]:
    result = sandbox.exec(script)
    assert result.exit_code == 0, result.stderr
    return {change.path: change for change in sandbox.changes()}


def test_the_project_is_seen_and_not_touched(sandbox: Sandbox, project: Path) -> None:
    do(sandbox, "cat a b sub/x link; echo more >> a; rm b; rm -r sub; echo new > new; chmod 700 .")
    assert sorted(path.name for path in project.rglob("*")) == ["a", "b", "link", "sub", "x"]
    assert (project / "a").read_text() == "one\n"
    assert sandbox.exec("cat a; ls").stdout == "one\nmore\na\nlink\nnew\n"


def test_every_kind_of_change_is_listed(sandbox: Sandbox) -> None:
    found = do(
        sandbox,
        "echo more >> a; rm b; rm -r sub; mkdir sub; echo y > sub/y; ln -sf b link; mkdir -p n/m; echo z > n/m/z",
    )
    kinds = {path: change.kind for path, change in found.items()}
    assert kinds == {
        "a": "modified",
        "b": "deleted",
        "link": "modified",
        "n": "added",
        "n/m": "added",
        "n/m/z": "added",
        "sub/x": "deleted",
        "sub/y": "added",
    }


def test_a_mode_alone_is_a_change_and_a_touched_file_is_not(sandbox: Sandbox) -> None:
    found = do(sandbox, "chmod 755 a; touch b; echo two > b; chmod 700 sub")
    assert {path: change.kind for path, change in found.items()} == {"a": "mode", "sub": "mode"}
    assert summary(found["a"]) == "m a mode 644 -> 755"


def test_a_file_in_place_of_a_directory_and_the_other_way_round(sandbox: Sandbox, project: Path) -> None:
    do(sandbox, "rm -r sub; echo file > sub; rm a; mkdir a; echo in > a/in")
    assert sandbox.apply().refused == []
    assert ((project / "sub").read_text(), (project / "a/in").read_text()) == ("file\n", "in\n")
    assert sandbox.changes() == []


def test_everything_is_carried_over_and_then_nothing_is_left_to_do(sandbox: Sandbox, project: Path) -> None:
    script = "echo more >> a; chmod 755 a; rm b; rm -r sub; mkdir sub; echo y > sub/y; ln -sf sub link"
    do(sandbox, f"{script}; mkdir n; echo z > n/z")
    done = sandbox.apply()
    assert done.refused == []
    assert (project / "a").read_text() == "one\nmore\n"
    assert stat.S_IMODE((project / "a").stat().st_mode) == 0o755
    assert not (project / "b").exists()
    assert os.listdir(project / "sub") == ["y"]
    assert os.readlink(project / "link") == "sub"
    assert (project / "n/z").read_text() == "z\n"
    assert sandbox.changes() == []
    # A second round, after more work in the same sandbox, has nothing against our own writing.
    do(sandbox, "echo again >> a")
    assert sandbox.apply().applied == ["a"]
    assert (project / "a").read_text() == "one\nmore\nagain\n"


def test_only_what_is_named_is_carried_over(sandbox: Sandbox, project: Path) -> None:
    do(sandbox, "echo more >> a; rm b; mkdir -p n/m; echo z > n/m/z; echo o > n/other")
    assert sandbox.apply(["n/m/z", str(project / "b")]).applied == ["b", "n/m/z"]
    assert (project / "a").read_text() == "one\n"
    assert not (project / "b").exists()
    assert [path.name for path in (project / "n").rglob("*")] == ["m", "z"]
    assert sandbox.apply(["nothing"]).refused == [("nothing", "nothing changed there")]
    with pytest.raises(SandboxError, match="not in the project"):
        sandbox.apply(["../outside"])


def test_what_the_host_changed_meanwhile_is_refused_and_both_sides_are_shown(sandbox: Sandbox, project: Path) -> None:
    do(sandbox, "echo inside >> a; rm b; rm -r sub")
    (project / "a").write_text("one\noutside\n")
    (project / "b").write_text("kept\n")
    (project / "sub/x").write_text("kept\n")
    done = sandbox.apply()
    assert done.applied == []
    assert [path for path, _ in done.refused] == ["a", "b", "sub"]
    assert all("changed on the host" in reason for _, reason in done.refused)
    assert (project / "a").read_text() == "one\noutside\n"
    (change,) = [change for change in sandbox.changes() if change.path == "a"]
    assert list(unified(sandbox._workspace(), change))[3:] == [" one", "-outside", "+inside"]
    assert sandbox._workspace().apply(["a"], overwrite=True).applied == ["a"]
    assert (project / "a").read_text() == "one\ninside\n"


def test_a_file_that_the_host_removed_meanwhile_is_not_brought_back_unasked(sandbox: Sandbox, project: Path) -> None:
    do(sandbox, "echo more >> a")
    (project / "a").unlink()
    assert sandbox.apply().refused == [("a", "the file was removed on the host")]
    assert not (project / "a").exists()


def test_a_file_that_appeared_on_the_host_meanwhile_is_not_replaced(sandbox: Sandbox, project: Path) -> None:
    do(sandbox, "echo inside > new")
    (project / "new").write_text("outside")
    assert len(sandbox.apply().refused) == 1
    assert (project / "new").read_text() == "outside"


def test_links_lead_nowhere_when_changes_are_carried_over(sandbox: Sandbox, project: Path, tmp_path: Path) -> None:
    do(sandbox, "echo evil > sub/victim; echo more > sub/x")
    # The host's own directory becomes a link, between the look and the deed.
    (project / "sub/x").unlink()
    (project / "sub").rmdir()
    (project / "sub").symlink_to(tmp_path / "outside")
    done = sandbox.apply(overwrite_all(sandbox))
    assert (tmp_path / "outside/victim").read_text() == "untouched"
    assert os.listdir(tmp_path / "outside") == ["victim"]
    assert done.applied == [] or not (project / "sub").is_symlink()


def overwrite_all(sandbox: Sandbox) -> list[str]:
    return [change.path for change in sandbox.changes()]


def test_a_link_that_leads_out_is_carried_over_only_when_named(sandbox: Sandbox, project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    found = do(sandbox, f"ln -s {outside} way; ln -s ../../etc up; ln -s sub/x fine; ln -s ./../project/a back")
    assert {path: change.risk is not None for path, change in found.items()} == {
        "way": True,
        "up": True,
        "fine": False,
        "back": True,
    }
    assert sandbox.apply().applied == ["fine"]
    assert not (project / "way").is_symlink()
    assert sandbox.apply(["way"]).applied == ["way"]
    assert os.readlink(project / "way") == str(outside)
    assert (outside / "victim").read_text() == "untouched"


def test_a_file_whose_replacement_is_refused_stays(sandbox: Sandbox, project: Path, tmp_path: Path) -> None:
    do(sandbox, f"rm a; ln -s {tmp_path}/outside/victim a; rm -r sub; ln -s {tmp_path}/outside sub; echo new > new")
    done = sandbox.apply()
    assert done.applied == ["new"]
    assert sorted({path for path, _ in done.refused}) == ["a", "sub"]
    assert (project / "a").read_text() == "one\n"
    assert (project / "sub/x").read_text() == "x\n"


def test_what_the_host_would_obey_is_carried_over_only_when_named(sandbox: Sandbox, project: Path) -> None:
    script = "mkdir -p .git/hooks .vscode; echo h > .git/hooks/pre-commit; echo c > .git/config"
    found = do(sandbox, f"{script}; echo t > .vscode/tasks.json; echo b > .bashrc; echo fine > fine")
    assert sandbox.apply().applied == [".git", "fine"]
    assert not (project / ".git/hooks").exists()
    assert found[".git/config"].risk
    assert sandbox.apply([".git/config"]).applied == [".git/config"]


def test_masked_files_stay_masked_and_are_no_changes(project: Path) -> None:
    (project / ".env").write_text("KEY=1\n")
    (project / ".git/hooks").mkdir(parents=True)
    (project / ".git/hooks/pre-commit").write_text("x")
    with Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox:
        assert sandbox.exec("cat .env").exit_code != 0
        assert sandbox.exec("echo evil > .git/hooks/pre-commit").exit_code != 0
        assert sandbox.changes() == []
        assert "KEY" not in sandbox.exec("echo x > other; cp -r . /tmp/copy; cat /tmp/copy/.env").stdout
        assert [change.path for change in sandbox.changes()] == ["other"]


def test_a_tenant_cannot_forge_the_marks_of_a_deletion(sandbox: Sandbox) -> None:
    program = """
import json
import os
open("a", "w").close()
for path in ("a", "sub"):
    for mark in ("whiteout", "opaque", "redirect", "metacopy"):
        try: os.setxattr(path, f"user.overlay.{mark}", b"y")
        except OSError: pass
try: os.mknod("b2", 0o020000, 0)
except OSError: pass
"""
    assert sandbox.exec(["python3", "-c", program]).exit_code == 0
    assert [(change.kind, change.path) for change in sandbox.changes()] == [("modified", "a")]


def test_devices_fifos_sockets_and_setuid_are_not_carried_over(sandbox: Sandbox, project: Path) -> None:
    script = "import socket; socket.socket(socket.AF_UNIX).bind('s')"
    do(sandbox, f'mkfifo f; python3 -c "{script}"; cp /bin/true t; chmod 755 t')
    Path(sandbox._workspace().directory, "upper", "t").chmod(0o6755)  # a tenant cannot, but let it be so
    done = sandbox.apply()
    assert dict(done.refused) == {"f": "is a fifo", "s": "is a socket"}
    assert stat.S_IMODE((project / "t").stat().st_mode) == 0o755


def test_names_and_contents_cannot_act_on_a_terminal(sandbox: Sandbox) -> None:
    script = r"""printf 'a\033]0;x\007\n\r\xc2\x9b2J' > "$(printf 'n\033[2J\n')"; ln -s "$(printf 'x\033[1m')" l"""
    found = do(sandbox, script)
    text = "\n".join(summary(change) for change in found.values())
    for change in found.values():
        text += "\n".join(unified(sandbox._workspace(), change))
    assert all(one == "\n" or one.isprintable() for one in text)
    assert printable("\x1b[2J\u202e\udcff") == r"\x1b[2J\u202e\udcff"


def test_binary_and_large_files_are_listed_by_size(sandbox: Sandbox) -> None:
    found = do(sandbox, r"printf '\0\1' > bin; head -c 3000000 /dev/zero | tr '\0' x > large; printf '\377' > latin")
    workspace = sandbox._workspace()
    assert list(unified(workspace, found["bin"])) == ["(binary file: none -> 2 bytes)"]
    assert list(unified(workspace, found["large"])) == ["(large file: none -> 3000000 bytes)"]
    assert list(unified(workspace, found["latin"])) == ["(binary file: none -> 1 bytes)"]


def test_a_file_that_is_nearly_all_hole_does_not_fill_the_disk(sandbox: Sandbox, project: Path) -> None:
    do(
        sandbox,
        "truncate -s 64G hole; printf end >> hole; truncate -s 1M empty; printf b > begins; truncate -s 5000 begins",
    )
    assert sandbox.apply().refused == []
    assert (project / "hole").stat().st_size == 2**36 + 3
    assert sum(path.stat().st_blocks for path in (project / "hole", project / "empty")) * 512 < 2**20
    with (project / "hole").open("rb") as file:
        file.seek(-4, os.SEEK_END)
        assert file.read() == b"\0end"
    assert (project / "empty").read_bytes() == bytes(2**20)
    assert (project / "begins").read_bytes() == b"b" + bytes(4999)


def test_whatever_a_tenant_has_left_can_be_thrown_away(project: Path) -> None:
    with Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox:
        sandbox.exec("mkdir closed; echo x > closed/x; chmod 000 closed; rm a b; mkdir -p l/o/t; mv l/o m; mknod f p")
        nest = "import os\nfor _ in range(3000):\n os.mkdir('deeper'); os.chdir('deeper')"
        assert sandbox.exec(["python3", "-c", nest]).exit_code == 0
        assert any(change.impossible == "lies too deep" for change in sandbox.changes())
        identity = sandbox.id
        sandbox.discard()
    home = os.environ["SANDBOX_HOME"]
    assert not os.path.exists(f"{home}/vms/{identity}/overlay")
    with pytest.raises(NotFound):
        Workspace.find(home, identity)
    assert sorted(os.listdir(project)) == ["a", "b", "link", "sub"]


def test_changes_outlive_the_sandbox(project: Path) -> None:
    with Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox:
        sandbox.exec("echo more >> a")
    assert [change.path for change in sandbox.changes()] == ["a"]
    assert sandbox.apply().applied == ["a"]


def test_nobody_else_can_look_at_the_changes(sandbox: Sandbox) -> None:
    place = Path(os.environ["SANDBOX_HOME"]) / "vms" / sandbox.id / "overlay"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def command(*words: str, project: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "sandbox", *words]
    return subprocess.run(argv, cwd=project, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def test_run_diff_apply_discard_from_the_command_line(project: Path) -> None:
    script = "echo more >> a; rm b; mkdir .vscode; echo x > .vscode/x"
    done = command("run", "--overlay", "--", "sh", "-c", script, project=project)
    assert done.returncode == 0
    identity = next(word.strip("`,") for word in done.stderr.split() if word.startswith("vm-"))
    shown = command("diff", identity, project=project)
    assert "M a (4 -> 9 bytes)" in shown.stdout
    assert "+more" in shown.stdout
    assert "D b" in shown.stdout
    assert (project / "a").read_text() == "one\n"
    applied = command("apply", identity[:6], project=project)
    assert applied.returncode == 1
    assert "not applied: .vscode/x: tools on the host obey this file" in applied.stderr
    assert (project / "a").read_text() == "one\nmore\n"
    assert command("diff", "--summary", identity, project=project).stdout.count("\n") == 2
    assert command("discard", identity, project=project).returncode == 0
    gone = command("diff", identity, project=project)
    assert gone.returncode == 125
    assert "has no changes" in gone.stderr


def test_a_run_without_changes_leaves_nothing_to_review(project: Path) -> None:
    done = command("run", "--overlay", "--", "cat", "a", project=project)
    assert (done.stdout, done.stderr) == ("one\n", "")
    assert not list(Path(os.environ["SANDBOX_HOME"]).glob("vms/*/overlay"))


def test_the_same_for_asyncio(project: Path) -> None:
    async def life() -> tuple[list[str], list[str]]:
        async with AsyncSandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox:
            await sandbox.exec("echo more >> a; rm b")
            found, done = await sandbox.changes(), await sandbox.apply(["a"])
            await sandbox.discard()
            return [change.path for change in found], done.applied

    assert asyncio.run(life()) == (["a", "b"], ["a"])
    assert (project / "a").read_text() == "one\nmore\n"
    assert (project / "b").exists()


def test_a_renamed_file_and_its_second_name_are_carried_over(sandbox: Sandbox, project: Path) -> None:
    found = do(sandbox, "mv a new; mkdir m; mv b m/b; ln sub/x sub/hard; echo more >> m/b")
    assert found["new"].source == "a"
    assert sandbox.apply().refused == []
    assert sorted(os.listdir(project)) == ["link", "m", "new", "sub"]
    assert ((project / "new").read_text(), (project / "m/b").read_text()) == ("one\n", "two\nmore\n")
    assert (project / "sub/x").samefile(project / "sub/hard")
    assert sandbox.changes() == []


@pytest.mark.parametrize(
    ("move", "after"),
    [
        ("mv a new", {"b": "two\n", "new": "one\n", "sub/x": "x\n"}),
        ("git mv a new", {"b": "two\n", "new": "one\n", "sub/x": "x\n"}),
        ("ln a hard", {"a": "one\n", "b": "two\n", "hard": "one\n", "sub/x": "x\n"}),
        ("mv a t && mv b a && mv t b", {"a": "two\n", "b": "one\n", "sub/x": "x\n"}),
        ("mv sub moved && mkdir sub && mv a sub/a", {"b": "two\n", "moved/x": "x\n", "sub/a": "one\n"}),
    ],
)
def test_what_was_moved_or_linked_is_there_after_apply_and_discard(
    project: Path, move: str, after: dict[str, str]
) -> None:
    subprocess.run(
        "rm link && git init -q && git add . && git -c user.name=x -c user.email=x commit -qm x",
        shell=True,
        cwd=project,
        check=True,
    )
    done = command("run", "--overlay", "--", "sh", "-c", move, project=project)
    assert done.returncode == 0, done.stderr
    applied = command("apply", project=project)
    assert applied.returncode == 0, applied.stderr
    command("discard", project=project)
    files = [path for path in project.rglob("*") if path.is_file() and ".git" not in path.parts]
    assert {str(path.relative_to(project)): path.read_text() for path in files} == after


def test_a_moved_directory_is_carried_over(sandbox: Sandbox, project: Path) -> None:
    do(sandbox, "mv sub other; mv other other2")
    assert sandbox.apply().refused == []
    assert sorted(os.listdir(project)) == ["a", "b", "link", "other2"]
    assert (project / "other2/x").read_text() == "x\n"


def test_a_rename_is_refused_at_both_ends_or_at_none(sandbox: Sandbox, project: Path) -> None:
    do(sandbox, "mv a .bashrc; mv b new; echo more >> new; mv sub .vscode")
    (project / "new").write_text("the host's")
    done = sandbox.apply()
    assert done.applied == []
    assert (project / "a").read_text() == "one\n"
    assert (project / "b").read_text() == "two\n"
    assert (project / "sub/x").read_text() == "x\n"
    # Naming one end is not enough either.
    assert [path for path, _ in sandbox.apply(["a"]).refused] == ["a"]
    assert (project / "a").exists()
    assert sandbox.apply(["a", ".bashrc"]).refused == []
    assert ((project / ".bashrc").read_text(), (project / "a").exists()) == ("one\n", False)


def test_a_file_that_the_host_changed_meanwhile_and_a_tenant_moved_stays_and_so_does_its_copy(
    sandbox: Sandbox, project: Path
) -> None:
    do(sandbox, "mv a new; echo more >> new")
    (project / "a").write_text("the host's\n")
    assert sorted(path for path, _ in sandbox.apply().refused) == ["a", "new"]
    assert (project / "a").read_text() == "the host's\n"


def test_a_tree_deeper_than_a_path_can_be_long_is_shown_and_carried_over(project: Path) -> None:
    nest = "import os\nfor _ in range(30):\n os.mkdir('d' * 200); os.chdir('d' * 200)\nopen('end', 'w').write('deep')"
    with Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox:
        assert sandbox.exec(["python3", "-c", nest]).exit_code == 0
        assert len(sandbox.changes()) == 31
        done = sandbox.apply()
    assert (done.refused, len(done.applied)) == ([], 31)
    fd = os.open(project, os.O_RDONLY)
    for _ in range(30):
        fd, above = os.open("d" * 200, os.O_RDONLY, dir_fd=fd), fd
        os.close(above)
    with open(os.open("end", os.O_RDONLY, dir_fd=fd)) as file:
        assert file.read() == "deep"
    os.close(fd)


@pytest.mark.parametrize("ending", ["apply", "discard", "prune"])
def test_nothing_of_an_apply_that_was_killed_stays_in_the_project(project: Path, ending: str) -> None:
    from tests.vfs.test_apply_property import killed

    script = "mv a new; rm -r sub; echo more >> b; mkdir .sandbox-apply-0123456789abcdef"
    with Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox:
        assert sandbox.exec(script).exit_code == 0
    before = sorted(os.listdir(project))
    for after in range(0, 4000, 40):
        killed(os.environ["SANDBOX_HOME"], sandbox.id, after)
        if any(name.startswith(".sandbox-apply-") for name in os.listdir(project)):
            break
    else:
        raise AssertionError("never caught in the middle")
    done = command(ending, *([] if ending == "prune" else [sandbox.id]), project=project)
    assert done.returncode == 0, done.stderr
    left = sorted(os.listdir(project))
    if ending == "apply":
        # What a tenant has named so is a tenant's.
        assert left == [".sandbox-apply-0123456789abcdef", "b", "link", "new"]
        assert (project / "b").read_text() == "two\nmore\n"
    else:
        assert left == before
        assert ((project / "a").read_text(), (project / "b").read_text()) == ("one\n", "two\n")


def test_a_file_system_that_is_mounted_on_the_host_is_never_deleted(sandbox: Sandbox) -> None:
    """A tenant does not see it, so what it does at that place is not about it."""
    workspace = sandbox._workspace()
    do(sandbox, "echo x > p")
    Path(workspace.directory, "upper", "p").unlink()
    workspace.root, workspace._place = "/", place_of("/")
    os.mkdir(Path(workspace.directory, "upper", "proc"))
    Path(workspace.directory, "upper", "proc", "x").write_text("x")
    assert [(change.path, change.impossible) for change in workspace.changes()] == [
        ("proc/x", "another file system is mounted there on the host")
    ]


@pytest.mark.parametrize(
    "attack",
    [
        "rm -rf .git 2>/dev/null; true",
        "rm -rf .git/objects; echo x > .git/objects",
        "rm -rf .git/refs; ln -s . .git/refs",
        "rm .git/HEAD; rm -rf bare.git/objects bare.git/refs bare.git/HEAD",
        "rm -rf .git/objects; mkdir .git/objects",
    ],
)
def test_apply_takes_no_repository_away(project: Path, attack: str) -> None:
    def git(*words: str, at: Path = project) -> str:
        named = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(["git", "-C", at, *named, *words], check=True, capture_output=True, text=True).stdout

    git("init", "-q", "-b", "main")
    git("add", "a")
    git("commit", "-q", "-m", "not pushed yet")
    git("branch", "other")
    git("clone", "-q", "--bare", ".", "bare.git")
    before = git("log", "--all", "--format=%H %D")
    with Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox:
        do(sandbox, attack)
        sandbox.apply()
    git("fsck", "--strict")
    assert git("log", "--all", "--format=%H %D") == before
    assert git("log", "--format=%s", "main", at=project / "bare.git") == "not pushed yet\n"


def test_a_file_for_which_there_is_no_room_does_not_keep_the_others_from_being_applied(project: Path) -> None:
    with Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox:
        assert sandbox.exec("head -c 3000000 /dev/zero > a; echo more >> b; echo new > new").ok
    script = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (1_000_000, r.RLIM_INFINITY)); "
    script += f"from sandbox.cli.main import main; main(['apply', '--yes', {sandbox.id!r}])"
    done = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True)
    assert "not applied: a: file too large" in done.stderr.lower() and "exists" not in done.stderr
    assert (project / "a").read_text() == "one\n"
    assert (project / "b").read_text() == "two\nmore\n"
    assert (project / "new").read_text() == "new\n"
    assert sorted(os.listdir(project)) == ["a", "b", "link", "new", "sub"]


@pytest.mark.parametrize("replacement", ["link", "directory"])
def test_nothing_is_applied_to_another_directory_that_has_the_projects_path_by_then(
    project: Path, tmp_path: Path, replacement: str
) -> None:
    other = tmp_path / "other"
    (other / "sub").mkdir(parents=True)
    (other / "a").write_text("not of that project\n")
    (other / "sub/x").write_text("not of that project\n")
    with Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox:
        assert sandbox.exec("echo changed > a; rm -r sub; echo new > new").ok
    moved = project.rename(tmp_path / "moved")
    if replacement == "link":
        project.symlink_to(other)
    else:
        other.rename(project)
    for act in (sandbox.changes, sandbox.apply, lambda: sandbox.apply(["a"], overwrite=True)):
        with pytest.raises(SandboxError, match="no longer the directory"):
            act()
    assert (project / "a").read_text() == (project / "sub/x").read_text() == "not of that project\n"
    assert sorted(os.listdir(project)) == ["a", "sub"]
    if replacement == "link":
        project.unlink()
    else:
        project.rename(other)
    moved.rename(project)
    assert not sandbox.apply().refused
    assert (project / "a").read_text() == "changed\n"
    assert sorted(os.listdir(project)) == ["a", "b", "link", "new"]


def test_a_discarded_file_is_neither_shown_nor_applied_until_it_changes_again(sandbox: Sandbox, project: Path) -> None:
    do(sandbox, "echo bad > a; echo good > new")
    home = os.environ["SANDBOX_HOME"]
    Workspace.find(home, sandbox.id).discard(["a"])
    assert [change.path for change in sandbox.changes()] == ["new"]
    assert sandbox.apply().refused == [] and (project / "a").read_text() == "one\n"
    assert (project / "new").read_text() == "good\n"
    assert "a" in do(sandbox, "echo better > a")
    with pytest.raises(NotFound):
        Workspace.find(home, sandbox.id).discard(["sub"])


def test_discarding_one_end_of_a_move_loses_neither(sandbox: Sandbox, project: Path) -> None:
    do(sandbox, "mv a moved")
    Workspace.find(os.environ["SANDBOX_HOME"], sandbox.id).discard(["moved"])
    done = sandbox.apply()
    assert "a" in dict(done.refused) and (project / "a").read_text() == "one\n"


def test_discard_with_paths_from_the_command_line(project: Path) -> None:
    run = command("run", "--overlay", "--", "sh", "-c", "echo bad > a; echo good > new", project=project)
    assert run.returncode == 0
    assert command("discard", "a", project=project).returncode == 0
    assert command("apply", project=project).returncode == 0
    assert (project / "a").read_text() == "one\n" and (project / "new").read_text() == "good\n"


def test_discard_of_a_new_file_named_like_the_beginning_of_the_id_keeps_the_other_changes(project: Path) -> None:
    digits = "0123456789abcdef"
    made = f"for name in {' '.join(digits)}; do echo new > $name; done"
    run = command("run", "--json", "--overlay", "--", "sh", "-c", made, project=project)
    name = json.loads(run.stdout)["overlay"].removeprefix("vm-")[0]
    assert command("discard", name, project=project).returncode == 0
    command("apply", project=project)
    applied = {digit for digit in digits if (project / digit).is_file() and (project / digit).read_text() == "new\n"}
    assert applied == set(digits) - {name}


@pytest.mark.parametrize("overlay", [True, False])
def test_a_directory_that_its_owner_closed_stays_closed(project: Path, overlay: bool) -> None:
    # A soak as an ordinary user found it: looking for repositories opened the directory, for good.
    closed = project / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0)
    with Sandbox({"filesystem": {"root": str(project), "overlay": overlay}}) as sandbox:
        sandbox.exec("git init -q sub; echo a > new", check=True)
        if overlay:
            sandbox.changes()
            sandbox.apply()
    assert stat.S_IMODE(closed.stat().st_mode) == 0
    closed.chmod(0o700)


def test_files_that_a_tenant_closed_are_applied_with_their_modes(project: Path) -> None:
    with Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox:
        sandbox.exec("echo f > f; echo g > g; ln g h; chmod 000 f g", check=True)
    done = Workspace.find(os.environ["SANDBOX_HOME"], sandbox.id, ended=True).apply()
    assert (done.refused, sorted(done.applied)) == ([], ["f", "g", "h"])
    assert [stat.S_IMODE((project / name).stat().st_mode) for name in "fgh"] == [0, 0, 0]


def test_an_apply_that_was_killed_before_it_opened_a_closed_directory_does_no_harm(project: Path) -> None:
    with Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox:
        sandbox.exec("mkdir d; echo a > d/a; chmod 000 d", check=True)
    overlay = Path(os.environ["SANDBOX_HOME"], "vms", sandbox.id, "overlay")
    (overlay / "modes").write_text(f"0 {b'/d'.hex()}\n")  # noted, and then killed
    done = Workspace.find(os.environ["SANDBOX_HOME"], sandbox.id, ended=True).apply()
    assert (done.refused, sorted(done.applied)) == ([], ["d", "d/a"])
    assert stat.S_IMODE((project / "d").stat().st_mode) == 0
    (project / "d").chmod(0o700)
    assert (project / "d/a").read_text() == "a\n"


MOVE = """
import os
os.mkdir("middle")
for number in range(500):  # it takes a while to get from first to last
    open(f"middle/{number}", "w").close()
print(flush=True)
while True:
    os.rename("first/file", "last/file")
    os.rename("last/file", "first/file")
"""


@pytest.mark.parametrize("by", ["library", "command line"])
def test_what_is_applied_while_tenants_run_is_how_it_was_at_one_moment(by: str, project: Path) -> None:
    for name in ("first", "last"):
        (project / name).mkdir()
    (project / "first/file").write_text("kept")
    command = [sys.executable, "-m", "sandbox", "apply", "--yes"]
    with (
        Sandbox({"filesystem": {"root": str(project), "overlay": True}}) as sandbox,
        sandbox.spawn(["/usr/bin/python3", "-c", MOVE]) as moving,
    ):
        moving.read()
        for turn in range(20 if by == "library" else 4):
            if by == "library":
                assert sandbox.apply().refused == [], turn
            else:
                done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stderr
            assert [one.read_text() for one in project.glob("*/file")] == ["kept"], turn
        moving.kill()
