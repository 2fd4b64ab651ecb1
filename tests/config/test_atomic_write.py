"""A file is written whole, or stays as it was."""

from __future__ import annotations

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
