"""Files of a kept home, where a tenant has been before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.config.model import State
from sandbox.config.state_names import home_path, plain_name
from sandbox.errors import SandboxError
from sandbox.state.paths import directory, kept, outermost
from sandbox.state.writing import LARGEST, read, write


def test_a_file_is_replaced_whole_and_its_directories_are_made(tmp_path: Path) -> None:
    write(str(tmp_path), "a/b/file", b"one")
    write(str(tmp_path), "a/b/file", b"two")
    assert read(str(tmp_path), "a/b/file") == b"two"
    assert [one.name for one in (tmp_path / "a/b").iterdir()] == ["file"]
    assert (tmp_path / "a/b/file").stat().st_mode & 0o077 == 0


def test_no_link_is_followed(tmp_path: Path) -> None:
    outside, home = tmp_path / "outside", tmp_path / "home"
    for one in (outside, home):
        one.mkdir()
    (outside / "file").write_text("mine")
    (home / "directory").symlink_to(outside)
    (home / "file").symlink_to(outside / "file")
    assert read(str(home), "directory/file") is None
    assert read(str(home), "file") is None
    with pytest.raises(OSError):
        write(str(home), "directory/file", b"theirs")
    write(str(home), "file", b"theirs")  # the link is replaced, not what it leads to
    assert (outside / "file").read_text() == "mine"
    assert os.listdir(outside) == ["file"]


def test_nothing_is_made_through_a_link_that_a_tenant_left_in_a_kept_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "own"))
    outside = tmp_path / "outside"
    (outside / "there").mkdir(parents=True)
    ((host, _),) = kept(State.read({"name": "x", "keep": [".config"]}), str(tmp_path))
    os.symlink(outside, f"{host}/app")
    for path in (".config/app", ".config/app/there", ".config/app/new/directory"):
        with pytest.raises(SandboxError, match="put something else in its place"):
            kept(State.read({"name": "x", "keep": [path]}), str(tmp_path))
    assert os.listdir(outside) == ["there"]


def test_only_a_file_of_bounded_size_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"x" * (LARGEST + 1))
    (tmp_path / "directory").mkdir()
    for name in ("fifo", "large", "directory", "missing", "missing/too"):
        assert read(str(tmp_path), name) is None
    with pytest.raises(OSError):
        write(str(tmp_path), "directory", b"")
    assert sorted(os.listdir(tmp_path)) == ["directory", "fifo", "large"]


def test_two_projects_of_the_same_name_are_two(tmp_path: Path) -> None:
    state = State.read({"name": "x", "keep": [".x"]})
    assert directory(state, "/a/project") != directory(state, "/b/project")
    assert directory(state, "/a/project") == directory(state, "/a/project")
    assert "/" not in os.path.basename(directory(state, "/"))


@pytest.mark.parametrize("name", ["", "..", ".x", "-x", "a/b", "a\n", "a b", "x" * 65, "é"])
def test_a_name_is_one_plain_directory(name: str) -> None:
    assert not plain_name(name)


@pytest.mark.parametrize("path", ["..", "../x", "a/../b", "/etc", "a//b", "./a", "a\0b"])
def test_no_kept_path_leads_out_of_the_home(path: str) -> None:
    with pytest.raises(ValueError, match="below the home"):
        home_path(path)


def test_a_directory_in_a_kept_one_is_kept_by_it() -> None:
    assert outermost([".a/b", ".a", ".ab", ".a"]) == [".a", ".ab"]
    assert outermost([".a", "."]) == ["."]
