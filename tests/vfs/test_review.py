"""What a person reads about a sandbox's changes: nothing in it acts on the terminal."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.cli import apply
from sandbox.vfs.changes import Change
from sandbox.vfs.file_state import FileState
from sandbox.vfs.review import summary

ESCAPE = "\x1b]0;owned\x07"


def test_conflicts_and_notes_are_escaped() -> None:
    side = FileState("file", 0o644, 1)
    shown = summary(Change("a", "added", None, side, conflict=f"see {ESCAPE}", notes=[f"see {ESCAPE}"]))
    assert shown.isprintable()
    assert shown.count("owned") == 2


def test_the_reason_why_a_change_is_not_applied_is_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = SimpleNamespace(applied=[], refused=[("a", f"belongs together with {ESCAPE}")])
    workspace: Any = SimpleNamespace(
        directory=str(tmp_path), changes=list, apply=lambda *_, **__: refused, discard=lambda: None
    )
    monkeypatch.setattr(apply, "meant", lambda words: (SimpleNamespace(running=False), workspace, []))
    asked: Any = SimpleNamespace(words=[], branch=None, commit_rest=False, force=False, yes=True, overwrite=False)
    assert apply.run(asked) == 1
    told = capsys.readouterr().err
    assert "owned" in told
    assert told.rstrip("\n").isprintable()
