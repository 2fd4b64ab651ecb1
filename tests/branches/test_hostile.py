"""Commits from inside are hostile: what git of the host would stumble over is refused, and then nothing has changed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox import Sandbox
from sandbox.branches.received_commits import Incoming, is_commit_name
from sandbox.branches.target import Target
from sandbox.errors import SandboxError
from tests.branches.repositories import git, repository, sandbox, snapshot

pytestmark = pytest.mark.walls


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    return repository(tmp_path / "project")


def brought(project: Path, script: str) -> subprocess.CompletedProcess[str]:
    return sandbox(project, "run", "--branch", "evil", "--", "sh", "-ec", script)


def objects(project: Path) -> set[str]:
    return set(git(project, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split())


TREES = {
    "a directory called .git": r"printf '040000 tree %s\t.git\n'  $(git write-tree)",
    "in other letters": r"printf '040000 tree %s\t.GIT\n'  $(git write-tree)",
    "as NTFS shortens it": r"printf '040000 tree %s\tgit~1\n'  $(git write-tree)",
    "with what HFS+ ignores": "printf '040000 tree %s\\t.g\\342\\200\\214it\\n'  $(git write-tree)",
    "two dots": r"printf '040000 tree %s\t..\n'  $(git write-tree)",
    "modules as a link": r"printf '120000 blob %s\t.gitmodules\n'  $(printf /etc/passwd | git hash-object -w --stdin)",
    "modules that run a command": r"""printf '100644 blob %s\t.gitmodules\n' $(printf '[submodule "x"]
path = x
url = --upload-pack=touch evil
' | git hash-object -w --stdin)""",
    "modules that leave their place": r"""printf '100644 blob %s\t.gitmodules\n' $(printf '[submodule "../../x"]
path = x
url = https://example.org/x
' | git hash-object -w --stdin)""",
}  # fmt: skip


@pytest.mark.parametrize("what", TREES)
def test_a_tree_that_would_act_on_the_host_is_refused(project: Path, what: str) -> None:
    before, there = snapshot(project, "evil"), objects(project)
    # Written without git's own objections: `git mktree` refuses some of them.
    script = (
        "mk() { python3 -c '"
        "import sys,subprocess\n"
        'out=b""\n'
        "for line in sys.stdin.buffer.read().splitlines():\n"
        '    head,name=line.split(b"\\t"); mode,kind,oid=head.split()\n'
        '    out+=mode.lstrip(b"0")+b" "+name+b"\\0"+bytes.fromhex(oid.decode())\n'
        'print(subprocess.run(["git","hash-object","-t","tree","-w","--literally","--stdin"],'
        "input=out,capture_output=True,check=True).stdout.decode().strip())'; }\n"
        f"tree=$({TREES[what]} | mk)\n"
        "git update-ref refs/heads/evil $(git commit-tree -p HEAD -m evil $tree)\n"
    )
    done = brought(project, script)
    assert "git refuses what came from inside" in done.stderr, done.stderr
    assert done.returncode == 125
    assert git(project, "branch", "--list", "evil") == ""
    assert objects(project) == there
    assert snapshot(project, "evil") == before


def test_settings_hooks_and_programs_from_inside_run_only_inside(project: Path, tmp_path: Path) -> None:
    script = (
        "for key in core.fsmonitor core.pager diff.external core.sshCommand uploadpack.packObjectsHook gpg.program; do"
        " git config $key 'touch ran-on-host' || true; done\n"
        "git config alias.pack-objects '!touch ran-on-host' || true\n"
        "for hook in pre-commit post-commit reference-transaction post-index-change pre-auto-gc; do"
        " printf '#!/bin/sh\\ntouch ran-on-host\\n' > .git/hooks/$hook && chmod +x .git/hooks/$hook || true; done\n"
        "echo x > x; git add x; git -c core.fsmonitor= commit -qm x\n"
    )
    done = brought(project, script)
    assert done.returncode == 0, done.stderr
    assert not (project / "ran-on-host").exists()
    assert "fsmonitor" not in (project / ".git/config").read_text()
    assert git(project, "log", "-1", "--format=%s", "evil") == "x"


def test_replaced_objects_grafts_and_alternates_of_a_tenant_mean_nothing_outside(project: Path) -> None:
    script = (
        "echo good > good; git add good; git commit -qm good\n"
        "old=$(git rev-parse HEAD)\n"
        "git replace $old $(git commit-tree -m orphan HEAD^{tree})\n"
        "mkdir -p .git/info /tmp/elsewhere; echo $old > .git/info/grafts\n"
        "echo /tmp/elsewhere > .git/objects/info/alternates\n"
    )
    done = brought(project, script)
    names = git(project, "for-each-ref", "--format=%(refname)").split()
    assert "refs/replace" not in " ".join(names)
    assert not (project / ".git/info/grafts").exists()
    assert not (project / ".git/objects/info/alternates").exists()
    if done.returncode == 0:  # git inside may refuse by itself; if commits came, they are whole
        assert git(project, "log", "--format=%s", "evil") == "good\nfirst"
    assert git(project, "fsck", "--strict") == ""


@pytest.mark.parametrize(
    "script",
    [
        "git update-ref refs/heads/evil $(git rev-parse HEAD) && rm -r .git",
        "mv .git away && ln -s /etc .git",
        "rm .git/HEAD && ln -s /etc/passwd .git/HEAD",
        "git update-ref -d refs/heads/evil",
        "printf 'ref: refs/heads/main\n' > .git/refs/heads/evil",
        "git rev-parse HEAD^{tree} > .git/refs/heads/evil",
        "echo ffffffffffffffffffffffffffffffffffffffff > .git/refs/heads/evil",
        "head -c 100000 /dev/urandom > .git/index",
        "chmod -R 000 .git",
    ],
)
def test_a_repository_that_was_broken_inside_is_an_error_and_the_persons_is_whole(project: Path, script: str) -> None:
    before, there = snapshot(project, "evil"), objects(project)
    done = brought(project, "echo x > x; git add x; git commit -qm x; " + script)
    assert "Traceback" not in done.stderr
    assert snapshot(project, "evil") == before
    if git(project, "branch", "--list", "evil") == "":
        assert objects(project) == there
    assert git(project, "fsck", "--strict") == ""


def test_a_commit_whose_files_are_missing_is_refused(project: Path) -> None:
    script = (
        "echo secret > x; git add x; git commit -qm x; blob=$(git rev-parse HEAD:x)\n"
        "rm -f .git/objects/$(echo $blob | cut -c1-2)/$(echo $blob | cut -c3-)\n"
    )
    done = brought(project, script)
    assert done.returncode == 125
    assert git(project, "branch", "--list", "evil") == ""


def test_a_false_git_inside_can_give_nothing_but_bytes(project: Path, tmp_path: Path) -> None:
    """The pack and the name of the commit are made up by the tenant altogether."""
    with Sandbox({"filesystem": {"root": str(project), "branch": "evil"}}) as inside:
        target = inside._branch
    assert target is not None
    pack = tmp_path / "pack"
    for data in (b"", b"PACK", b"PACK\0\0\0\2\0\0\0\0" + bytes(20), b"PACK\0\0\0\2\xff\xff\xff\xff" + os.urandom(4000)):
        pack.write_bytes(data)
        for tip in ("f" * 40, git(project, "rev-parse", "main^{tree}"), "HEAD", "main", "--all", "", "0" * 40):
            with pytest.raises(SandboxError):
                Incoming(target, tip, str(pack)).accept("vm-x", str(tmp_path))
    assert git(project, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert not [name for name in os.listdir(tmp_path) if name.startswith("quarantine")]


@settings(max_examples=25)
@given(junk=st.binary(max_size=300), cut=st.integers(0, 400), flip=st.integers(0, 400))
def test_a_damaged_pack_never_reaches_the_repository(
    junk: bytes, cut: int, flip: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("damaged")
    project = repository(place / "project")
    target = Target.find(str(project), "evil")
    other = repository(place / "other")
    (other / "new").write_text("new\n")
    git(other, "fetch", "-q", str(project), "main")
    git(other, "reset", "-q", "--hard", "FETCH_HEAD")
    (other / "new").write_text("new\n")
    git(other, "add", "-A")
    git(other, "commit", "-q", "-m", "new")
    tip = git(other, "rev-parse", "HEAD")
    packed = subprocess.run(
        ["git", "pack-objects", "-q", "--revs", "--stdout"], cwd=other, input=f"{tip}\n^{target.start}\n".encode(),
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    flip %= len(packed)
    data = packed[:flip] + bytes([packed[flip] ^ 1]) + packed[flip + 1 :]
    data = data[: max(0, len(data) - cut)] + junk
    (place / "pack").write_bytes(data)
    with pytest.raises(SandboxError):
        Incoming(target, tip, str(place / "pack")).accept("vm-x", str(place))
    assert git(project, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    (place / "pack").write_bytes(packed)
    assert Incoming(target, tip, str(place / "pack")).accept("vm-x", str(place)) == 1


@given(text=st.text(max_size=70))
def test_only_the_full_name_of_an_object_is_one(text: str) -> None:
    full = len(text) in (40, 64) and all(sign in "0123456789abcdef" for sign in text)
    assert is_commit_name(text) is full
