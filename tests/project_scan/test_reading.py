"""A project's files are hostile input."""

from __future__ import annotations

import os
from pathlib import Path

from sandbox.project_scan.reading import Project


def test_a_directory_in_a_files_place_is_not_read_and_is_closed_again(tmp_path: Path) -> None:
    (tmp_path / "package.json").mkdir()
    with Project(str(tmp_path)) as project:
        before = set(os.listdir("/dev/fd"))
        assert project.text("package.json") == ""
        assert set(os.listdir("/dev/fd")) <= before
