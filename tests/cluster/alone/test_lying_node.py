"""What a node says about a project's changes is for review, and reaches nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.cluster import travel
from sandbox.errors import SandboxError
from sandbox.vfs.changes import Change
from sandbox.vfs.file_state import FileState
from tests.pool.test_late import fill_project
from tests.sandboxes import home

__all__ = ["home"]
CONTENT = b"from the node\n"


class LyingNode:
    """A sandbox on a node that says this about what was changed."""

    def __init__(self, *changes: Change) -> None:
        self._changes = changes

    def changes(self) -> list[Change]:
        return list(self._changes)

    def read_file(self, path: str, max_bytes: int = 0) -> bytes:
        return CONTENT


def added(path: str, kind: str = "file", target: str | None = None) -> Change:
    return Change(path, "added", None, FileState(kind, 0o777, len(CONTENT), target))


def everything(directory: Path) -> dict[str, bytes]:
    return {
        str(one): one.read_bytes()
        for one in sorted(directory.rglob("*"))
        if one.is_file() and not one.is_symlink() and not one.is_relative_to(directory / "home")
    }


@pytest.mark.parametrize(
    "changes",
    [
        [added("../out")],
        [added("a", "directory"), added("a/../../out")],
        [added("OUT")],
        [added("way", "link", ".."), added("way/out")],
        [added("way", "link", "OUT"), added("way")],
        [added(".env")],
        [added(".git/hooks/pre-commit")],
        [added("config/id_rsa")],
        [Change("notes.txt", "deleted", FileState("file", 0o644, 6), None), added("notes.txt", "link", "OUT")],
        [Change("..", "deleted", FileState("directory", 0o755, 0), None)],
        [Change("OUT", "mode", FileState("file", 0o600, 6), FileState("file", 0o777, 6))],
        [added("x\0y")],
        [added("")],
    ],
)
def test_it_changes_nothing_here_before_the_review_and_nothing_but_the_project_by_it(
    home: Path, tmp_path: Path, changes: list[Change]
) -> None:
    out = tmp_path / "out"
    out.write_text("mine\n")
    project = fill_project(tmp_path / "sent")
    for one in changes:
        one.path = str(out) if one.path == "OUT" else one.path
        if one.after is not None and one.after.target == "OUT":
            one.after.target = str(out)
    before = everything(tmp_path)
    node: Any = LyingNode(*changes)
    try:
        review = travel.bring_back(node, travel.Sent(str(project), "/there", []))
    except (SandboxError, OSError, ValueError):
        assert everything(tmp_path) == before
        return
    with review:
        assert everything(tmp_path) == before
        review.apply()
    after = everything(tmp_path)
    changed = [one for one in {*before, *after} if before.get(one) != after.get(one)]
    guarded = [str(project / one) for one in (".env", "config/id_rsa", ".git/hooks/pre-commit")]
    assert all(Path(one).is_relative_to(project) and one not in guarded for one in changed), changed
