"""Every index that git writes is left alone; one that names a file git would not write is not."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import Sandbox
from sandbox.guards.git_index import indexes, leads_astray

MANY = "mkdir d && cd d && seq -f 'a-longer-name-%.0f' 1 25000 | xargs touch && cd .. && git config index.threads 4 &&"
KINDS = {
    "of no file": "git read-tree --empty",
    "as it is by default": "git add .",
    "in version 4": "git add . && git update-index --index-version 4",
    "with flags of version 3": "git add -N . && git update-index --skip-worktree a",
    "split": "git add . && git update-index --split-index && echo b > a && echo > new"
    " && git rm -q --cached deep/er/b && git add a new",
    "sparse": "git add . && git commit -qm x && git sparse-checkout set --cone --sparse-index none",
    "with an untracked cache": "git add . && git update-index --untracked-cache && git status",
    "read in blocks": f"{MANY} git add .",
    "read in blocks, in version 4": f"{MANY} git update-index --index-version 4 && git add .",
    "with a name longer than its field": "git update-index --add --cacheinfo"
    " 100644,$(git hash-object -w a),$(printf '%04096d' 1)",
    "of a conflict": "git add . && git commit -qm x && git checkout -qb o && echo o > a && git commit -qam o"
    " && git checkout -q - && echo p > a && git commit -qam p && ! git merge o",
    "with names that are nearly special": "mkdir .git2 ... .github && touch .gitignore .git2/a .../b .github/c ..d"
    " && git add .",
}


def repository(place: Path, script: str, *words: str) -> Path:
    """A repository in which somebody did this."""
    subprocess.run(["git", "init", "-q", *words, str(place)], check=True)
    (place / "deep" / "er").mkdir(parents=True)
    (place / "a").write_text("a")
    (place / "deep" / "er" / "b").write_text("b")
    who = "git config user.name n && git config user.email e &&"
    subprocess.run(["sh", "-ec", f"{who} {script}"], cwd=place, check=True, capture_output=True)
    return place / ".git"


@pytest.mark.parametrize("script", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("objects", ["sha1", "sha256"])
def test_what_git_writes_leads_nowhere(tmp_path: Path, script: str, objects: str) -> None:
    git = repository(tmp_path / "r", script, f"--object-format={objects}")
    assert indexes(str(git))
    assert not any(leads_astray(str(git / name), str(git / "config")) for name in indexes(str(git)))


@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize("name", ["../outside.txt", ".git/hooks/x", "/etc/passwd", "./.GIT/config", "d/../../outside"])
def test_a_name_outside_of_the_work_tree_does(tmp_path: Path, version: str, name: str) -> None:
    git = repository(tmp_path, f"touch {'+' * len(name)} && git add . && git update-index --index-version {version}")
    index = git / "index"
    data = index.read_bytes()[:-20].replace(b"+" * len(name), name.encode())
    index.write_bytes(data + hashlib.sha1(data).digest())
    assert leads_astray(str(index), str(git / "config"))


def test_blocks_that_begin_elsewhere_do(tmp_path: Path) -> None:
    git = repository(tmp_path, KINDS["read in blocks"])
    index = git / "index"
    before, kind, after = index.read_bytes().partition(b"IEOT")
    index.write_bytes(before + kind + after[:8] + (4096).to_bytes(4, "big") + after[12:])
    assert leads_astray(str(index), str(git / "config"))


@given(st.binary(max_size=400), st.integers(2, 4), st.integers(0, 3))
def test_no_bytes_confuse_the_reader(
    tmp_path_factory: pytest.TempPathFactory, rest: bytes, version: int, count: int
) -> None:
    index = tmp_path_factory.getbasetemp() / "any-index"
    index.write_bytes(b"DIRC" + version.to_bytes(4, "big") + count.to_bytes(4, "big") + rest)
    assert leads_astray(str(index), "/nowhere") in (True, False)


def long_names(count: int) -> bytes:
    """An index in version 4 whose names grow with each entry: a small one can name gigabytes."""
    entry = bytes(40) + bytes(20)
    first = entry + (0x0FFF).to_bytes(2, "big") + b"\0" + b"a" * 4000 + b"\0"
    more = entry + (0x0FFF).to_bytes(2, "big") + b"\0" + b"a" * 60 + b"\0"
    data = b"DIRC" + (4).to_bytes(4, "big") + count.to_bytes(4, "big") + first + more * (count - 1)
    return data + hashlib.sha1(data).digest()


@pytest.mark.walls
@pytest.mark.parametrize(("count", "moved"), [(1, False), (2, False), (3, True), (200_000, True)])
def test_an_index_with_names_too_long_for_a_file_is_moved_aside_after_the_run(
    tmp_path: Path, count: int, moved: bool
) -> None:
    git = repository(tmp_path, "git add .")
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sandbox:
        sandbox.write_file(".git/index", long_names(count))
    assert (git / "index.from-sandbox").exists() is moved
    assert (git / "index").exists() is not moved
