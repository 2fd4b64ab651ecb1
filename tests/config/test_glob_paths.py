"""Which paths a glob of the configuration means, whatever links are there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.config.glob_paths import matches, means
from sandbox.config.model import Filesystem
from sandbox.guards.search import search
from sandbox.layout.paths import expanded


def found(root: Path, pattern: str) -> set[str]:
    return {os.path.relpath(one, root) for one in matches(f"{root}/{pattern}")}


def test_globs_mean_what_pythons_do(tmp_path: Path) -> None:
    (tmp_path / "a/.b").mkdir(parents=True)
    for name in (".env", "a/.env", "a/.b/.env", "a/x.py"):
        (tmp_path / name).touch()
    assert found(tmp_path, "**/.env") == {".env", "a/.env", "a/.b/.env"}
    assert found(tmp_path, "*/.env") == {"a/.env"}
    assert found(tmp_path, "a/**") == {"a", "a/.b", "a/.env", "a/.b/.env", "a/x.py"}
    assert found(tmp_path, "a/*.p[xy]") == {"a/x.py"}
    assert found(tmp_path, "no/**/x") == set()


def test_links_to_their_own_directory_do_not_hold_up_a_start(tmp_path: Path) -> None:
    for name in ("x", "y", "z"):
        (tmp_path / name).symlink_to(".")
    (tmp_path / ".env").touch()
    filesystem = Filesystem(root=str(tmp_path), deny_read=["**/.env"])
    assert list(search(filesystem, [str(tmp_path)]).found.masks) == [f"{tmp_path}/.env"]
    for through_links in (False, True):
        assert expanded(str(tmp_path), "**/.env", through_links=through_links) == [f"{tmp_path}/.env"]


def test_a_file_that_is_reached_only_by_a_link_into_what_tenants_see_is_denied(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    project.mkdir()
    other.mkdir()
    (other / "private").touch()
    (project / "link").symlink_to(other)
    filesystem = Filesystem(root=str(project), deny_read=["**/private"])
    assert list(search(filesystem, [str(project), str(other)]).found.masks) == [f"{other}/private"]


@pytest.mark.parametrize(
    "pattern",
    ["*", "*/b", "**", "a/**", "**/b", "**/b/*", "a/**/c", "**/*.x", "**/**/c", "a/?", "a/[bc]", "**/b/**", "a/b/c*/*"],
)
def test_whether_a_glob_means_one_path_agrees_with_all_that_it_means(tmp_path: Path, pattern: str) -> None:
    for name in ("a/b/c", "a/b/c.x/d", "b/b/b", "c.x", ".h/b/c", "a/c/b/c"):
        (tmp_path / name).mkdir(parents=True)
    everything = [str(tmp_path), *map(str, tmp_path.rglob("*"))]
    spelled = f"{tmp_path}/{pattern}"
    assert {path for path in everything if means(spelled, path)} == set(matches(spelled))


def test_a_link_in_the_literal_part_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert means(f"{tmp_path}/link/*.x", f"{tmp_path}/real/a.x")
    assert not means(f"{tmp_path}/link/*.x", f"{tmp_path}/realer/a.x")
