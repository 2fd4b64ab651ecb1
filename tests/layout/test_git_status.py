"""git inside, where the project's files have another owner than outside: root's tenants are not root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox

pytestmark = pytest.mark.walls

MODIFIED = " M f\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "f").write_text("aaaa")
    (tmp_path / "g").write_text("cccc")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "all")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


@pytest.fixture
def inside(repository: Path) -> Iterator[Sandbox]:
    with Sandbox({"filesystem": {"root": str(repository)}}) as sandbox:
        yield sandbox


def said(inside: Sandbox, command: str) -> str:
    result = inside.exec(command)
    assert not result.exit_code, result.stderr
    return result.stdout


def status(inside: Sandbox) -> str:
    return said(inside, "git status --porcelain -uno")


def test_git_status_leaves_the_index_as_it_is(repository: Path, inside: Sandbox) -> None:
    index = repository / ".git/index"
    long_ago = 1_700_000_000  # before the index was written: nothing that git would have to look at again
    for name in "fg":
        os.utime(repository / name, (long_ago, long_ago))
    subprocess.run(["git", "status"], cwd=repository, check=True, capture_output=True)
    before = index.read_bytes()
    assert status(inside) == ""
    assert index.read_bytes() == before


@pytest.mark.parametrize("by", ["inside", "outside"])
def test_a_change_in_the_second_of_the_last_commit_is_reported(repository: Path, inside: Sandbox, by: str) -> None:
    """Of the same size, and with every time in one second: 0.1 written, 0.3 committed, 0.5 changed."""
    second = 1_700_000_000 * 10**9
    os.utime(repository / "f", ns=(second, second + 100_000_000))
    subprocess.run(["git", "update-index", "-q", "--refresh"], cwd=repository, check=True)
    os.utime(repository / ".git/index", ns=(second, second + 300_000_000))
    if by == "inside":
        said(inside, "printf bbbb > f; touch -d @1700000000.5 f")
    else:
        (repository / "f").write_text("bbbb")
        os.utime(repository / "f", ns=(second, second + 500_000_000))
    assert status(inside) == MODIFIED
    assert subprocess.check_output(["git", "status", "--porcelain", "-uno"], cwd=repository, text=True) == MODIFIED


def test_a_change_of_the_same_size_is_reported_after_git_inside_has_written_its_index(inside: Sandbox) -> None:
    script = "printf bbbb > f; git add f; printf dddd > f; git status --porcelain -uno"
    assert said(inside, script) == "MM f\n"


def test_the_repositorys_own_setting_comes_first(repository: Path, inside: Sandbox) -> None:
    subprocess.run(["git", "config", "core.checkStat", "default"], cwd=repository, check=True)
    assert said(inside, "git config core.checkStat") == "default\n"
