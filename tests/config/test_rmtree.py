"""A tree that somebody hostile made can always be taken away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.config.rmtree import remove_tree


def test_deep_closed_and_odd_trees_go(tmp_path: Path) -> None:
    place = tmp_path / "tree"
    (place / "closed").mkdir(parents=True)
    (place / "closed/x").write_text("x")
    os.chmod(place / "closed", 0)
    (place / "link").symlink_to(tmp_path)
    os.mkfifo(place / "fifo")
    fd = os.open(place, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("deeper", dir_fd=fd)
        below = os.open("deeper", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    (tmp_path / "outside").write_text("kept")
    remove_tree(str(place))
    assert os.listdir(tmp_path) == ["outside"]


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError):
        remove_tree(str(tmp_path / "link"))
    assert (tmp_path / "real").is_dir()
