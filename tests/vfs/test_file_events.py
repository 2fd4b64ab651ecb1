"""Changes in directories that the kernel serves are told as events."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox
from sandbox.vfs.file_events import FileEvents

pytestmark = pytest.mark.walls


def watched(place: Path, *acts: object) -> list[tuple[str, str, int]]:
    told: list[tuple[str, str, int]] = []
    watch = FileEvents({"/w": os.open(place, os.O_RDONLY | os.O_DIRECTORY)}, lambda *event: told.append(event))
    try:
        for act in acts:
            act()  # type: ignore[operator]
    finally:
        watch.close()
    return told


def test_each_change_is_reported_in_order(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    told = watched(
        tmp_path,
        lambda: (tmp_path / "a").write_text("12345"),
        lambda: (tmp_path / "a").rename(tmp_path / "old/b"),
        lambda: (tmp_path / "old/b").chmod(0o600),
        lambda: (tmp_path / "old/b").unlink(),
    )
    assert [(operation, path) for operation, path, _ in told] == [
        ("create", "/w/a"),
        ("write", "/w/a"),
        ("rename", "/w/old/b"),
        ("setattr", "/w/old/b"),
        ("remove", "/w/old/b"),
    ]


def test_directories_made_or_moved_later_are_watched_too(tmp_path: Path) -> None:
    (tmp_path / "aside").mkdir()

    def make() -> None:
        (tmp_path / "new/deep").mkdir(parents=True)
        (tmp_path / "new/deep/x").write_text("x")

    def move() -> None:
        (tmp_path / "new").rename(tmp_path / "aside/moved")

    told = watched(tmp_path, make, move, lambda: (tmp_path / "aside/moved/later").write_text("y"))
    paths = [path for _, path, _ in told]
    # Under its old path or its new one, depending on who was faster, but told.
    assert {"/w/new/deep/x", "/w/aside/moved/deep/x"} & set(paths)
    assert ("rename", "/w/aside/moved", 0) in told
    assert {"/w/new/later", "/w/aside/moved/later"} & set(paths)


def test_what_leaves_the_tree_is_reported_as_removed(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w/x").write_text("x")
    assert watched(tmp_path / "w", lambda: (tmp_path / "w/x").rename(tmp_path / "x")) == [("remove", "/w/x", 0)]


def test_a_link_is_never_looked_through(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "w").mkdir()

    def act() -> None:
        (tmp_path / "w/l").symlink_to(tmp_path / "outside")
        (tmp_path / "outside/x").write_text("secret")

    assert watched(tmp_path / "w", act) == [("create", "/w/l", 0)]


def test_a_sandbox_reports_what_tenants_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    project.mkdir()
    vfs = {"file_events": True, "mounts": {"/m": {"type": "memory"}}}
    events: list[dict[str, Any]] = []
    with Sandbox({"filesystem": {"root": str(project)}, "vfs": vfs}) as sandbox:
        sandbox.on_event(events.append)
        sandbox.exec("echo 12345 > x; mkdir /m/d; echo y > /m/d/y")
    files = [event["file"] for event in events if event["type"] == "file"]
    assert {"op": "write", "path": f"{project}/x", "size": 6} in files
    assert any(file["path"] == "/m/d/y" for file in files)


def test_an_overlay_project_reports_changes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    config = {"filesystem": {"root": str(tmp_path / "project"), "overlay": True}, "vfs": {"file_events": True}}
    paths: list[str] = []
    with Sandbox(config) as sandbox:
        sandbox.on_event(lambda event: paths.append(event["file"]["path"]) if event["type"] == "file" else None)  # type: ignore[index]
        sandbox.exec("echo x > x")
    assert f"{tmp_path}/project/x" in paths
