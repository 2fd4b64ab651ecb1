"""Copying trees that a tenant made."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.checkpoints import trees
from sandbox.checkpoints.digest import digest
from sandbox.checkpoints.trees import DEPTH, Trees, own_directory

MOST = 1 << 30


def copied(source: Path, target: Path) -> Path:
    target.mkdir()
    with own_directory(str(source)) as old, own_directory(str(target)) as new:
        Trees(MOST).copy(old, new)
    return target


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tmp_path / "source"
    made.mkdir()
    return made


def test_the_names_of_one_file_stay_names_of_one_file(source: Path, tmp_path: Path) -> None:
    (source / "a" / "b").mkdir(parents=True)
    (source / "a" / "b" / "one").write_text("same")
    os.link(source / "a" / "b" / "one", source / "two")
    os.symlink("nowhere", source / "three")
    os.link(source / "three", source / "a" / "four", follow_symlinks=False)
    made = copied(source, tmp_path / "target")
    assert (made / "two").samefile(made / "a" / "b" / "one")
    assert os.lstat(made / "three").st_ino == os.lstat(made / "a" / "four").st_ino


def test_the_umask_of_the_process_is_never_changed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It belongs to all threads: another would meanwhile make files that everybody can write."""
    os.mkfifo(source / "pipe")
    (source / "pipe").chmod(0o666)
    (source / "file").write_text("x")
    (source / "file").chmod(0o666)
    old = os.umask(0o077)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", lambda mask: pytest.fail("the umask was changed"))
            made = copied(source, tmp_path / "target")
    finally:
        os.umask(old)
    for name in ("pipe", "file"):
        assert stat.S_IMODE((made / name).stat().st_mode) == 0o666


def test_a_tree_that_is_too_deep_is_an_error_and_one_of_the_greatest_depth_is_copied(
    source: Path, tmp_path: Path
) -> None:
    program = "import os, sys\nfor _ in range(int(sys.argv[1])): os.mkdir('d'); os.chdir('d')"
    subprocess.run([sys.executable, "-c", program, str(DEPTH)], cwd=source, check=True)
    made = copied(source, tmp_path / "target")
    digest(str(made), "")
    os.rename(source / "d", tmp_path / "d")
    (source / "d").mkdir()
    os.rename(tmp_path / "d", source / "d" / "d")
    with pytest.raises(OSError, match="symbolic links"):
        copied(source, tmp_path / "another")


def test_a_tree_of_too_many_entries_is_an_error(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(11):
        (source / str(number)).touch()
    monkeypatch.setattr(trees, "ENTRIES", 10, raising=False)
    with pytest.raises(OSError, match="too large"):
        copied(source, tmp_path / "target")
