"""A file is written whole, or stays as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.config.atomic_write import write_whole


def test_the_new_text_takes_the_old_ones_place_and_is_ones_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    write_whole(str(tmp_path / "file"), "new é")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "new é"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(str(tmp_path / "file"), "\ud800")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("file", "old")]


def test_nothing_that_lies_beside_the_file_is_written_or_removed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("not ours")
    planted = tmp_path / f"file.{os.getpid()}.new"
    planted.symlink_to(tmp_path / "other")
    write_whole(str(tmp_path / "file"), "new")
    assert (tmp_path / "other").read_text() == "not ours"
    assert not (tmp_path / "file").is_symlink() and (tmp_path / "file").read_text() == "new"
    assert planted.is_symlink()


def test_a_write_inside_another_of_the_same_file_leaves_one_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two threads do it, at the worst moment."""
    file, replace = str(tmp_path / "file"), os.replace

    def late(source: str, target: str) -> None:
        monkeypatch.setattr(os, "replace", replace)
        write_whole(file, "second")
        replace(source, target)

    monkeypatch.setattr(os, "replace", late)
    write_whole(file, "first")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("file", "first")]
