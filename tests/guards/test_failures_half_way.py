"""What a guard leaves behind when it fails half-way."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sandbox.guards import git_undo, reserved_dirs


def test_a_reservation_that_fails_releases_its_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    before = sorted(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as broken:
        broken.setattr(reserved_dirs.ReservedDirs, "_reserve", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            reserved_dirs.ReservedDirs(str(project))
    assert sorted(os.listdir("/proc/self/fd")) == before


def _interrupted(*given: object, **named: object) -> None:
    raise KeyboardInterrupt


def test_settings_with_a_second_name_do_not_stay_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "made.git"
    repository.mkdir()
    (repository / "config").write_text("[core]\n\tbare = true\n")
    (tmp_path / "other").hardlink_to(repository / "config")
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(git_undo, "_fresh", _full)
    git_undo.Neutralise([str(tmp_path)], lambda path, saved: told.append((path, saved))).repository(str(repository))
    assert not (repository / "config").exists()
    assert told == [(f"{repository}/config", f"{repository}/config.from-sandbox")]


def _full(*given: object) -> str:
    raise OSError(errno.ENOSPC, "no space left")
