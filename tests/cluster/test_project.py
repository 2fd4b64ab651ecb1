"""A project travels guarded, and its changes come back for review."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sandbox import SandboxError
from tests.cluster.three_nodes import ThreeNodes
from tests.pool.test_late import fill_project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    made = fill_project(tmp_path / "project")
    (made / "run.sh").write_text("#!/bin/sh\necho it runs\n")
    (made / "run.sh").chmod(0o755)
    (made / "config/.env.local").write_text("LOCAL=real")
    (made / "link").symlink_to("notes.txt")
    return made


def test_what_the_guards_block_never_leaves_this_machine(cluster: Any, machines: ThreeNodes, project: Path) -> None:
    with cluster.sandbox(project=project) as sandbox:
        assert sandbox.read_text("notes.txt") == "plain\n"
        assert sandbox.exec("./run.sh; cat link", check=True).stdout == "it runs\nplain\n"
        assert sandbox.exec("cat .env config/.env.local").stdout == ""
    for directory, _, files in os.walk(machines.home):
        for name in files:
            path = os.path.join(directory, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    content = file.read()
                assert b"TOKEN=real" not in content and b"LOCAL=real" not in content, path


def test_what_the_node_has_is_not_sent_again(cluster: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sandbox.cluster.line import Line

    sent: list[str] = []
    ask = Line.ask

    def noted(line: Line, method: str, path: str, body: Any = None) -> bytes:
        sent.extend([path] if method == "PUT" else [])
        return ask(line, method, path, body)

    monkeypatch.setattr(Line, "ask", noted)
    (project / "notes.txt").write_text(os.urandom(16).hex())
    seen: dict[str, int] = {}
    for _ in range(12):  # Ray chooses the node
        with cluster.sandbox(project=project) as sandbox:
            before = seen.get(sandbox.node)
            seen[sandbox.node] = len(sent)
            sent.clear()
            if before is not None:
                assert seen[sandbox.node] == 0
                return
    raise AssertionError("no node was chosen twice")


def test_changes_come_back_to_be_reviewed_and_applied(cluster: Any, project: Path) -> None:
    with cluster.sandbox(project=project) as sandbox:
        sandbox.exec(
            "echo more >> notes.txt; mkdir new; echo made > new/file; rm run.sh; ln -s new/file also", check=True
        )
        with sandbox.bring_back() as review:
            found = {one.path: one.kind for one in review.changes()}
            assert found["notes.txt"] == "modified" and found["run.sh"] == "deleted" and found["new/file"] == "added"
            assert found["also"] == "added"
            assert (project / "notes.txt").read_text() == "plain\n"  # until somebody has looked
            review.apply()
    assert (project / "notes.txt").read_text() == "plain\nmore\n"
    assert (project / "new/file").read_text() == "made\n" and not (project / "run.sh").exists()
    assert (project / ".env").read_text() == "TOKEN=real"


def test_what_was_changed_here_too_does_not_come_back(cluster: Any, project: Path) -> None:
    with cluster.sandbox(project=project) as sandbox:
        sandbox.exec("echo theirs > notes.txt", check=True)
        (project / "notes.txt").write_text("ours\n")
        with pytest.raises(SandboxError, match="was changed here, too"):
            sandbox.bring_back()
    assert (project / "notes.txt").read_text() == "ours\n"


@pytest.mark.parametrize("path", ["../out", "/etc/x", "a/../../b", "", "link/file", "a//b"])
def test_no_path_leads_out_of_a_project(tmp_path: Path, path: str) -> None:
    from sandbox.cluster.blobs import BlobStore
    from sandbox.cluster.manifest import ManifestEntry
    from sandbox.errors import InvalidArgument

    root = tmp_path / "root"
    root.mkdir()
    entries = [ManifestEntry("link", "symlink", 0, "", "/tmp"), ManifestEntry(path, "directory", 0o755)]
    with pytest.raises(InvalidArgument):
        BlobStore(str(tmp_path / "blobs")).build(str(root), entries)
    assert list(root.iterdir()) == []
