"""What a guard leaves behind when it fails half-way."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sandbox.guards import git_undo, reserved_dirs
from sandbox.guards.git_marker import Baseline, Marker


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


def test_half_of_what_is_trusted_is_not_written_down_as_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = Baseline(str(tmp_path))
    trusted.trusted.absent = {f"{tmp_path}/{number}": None for number in range(1000)}
    marker = Marker(str(tmp_path / "marker"))
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:4096], at))  # as on a disk that gets full
    with pytest.raises(OSError, match="No space left"):
        marker.write(trusted)
    marker.let_go()
    assert Marker(str(tmp_path / "marker")).left is None


@pytest.mark.parametrize("data", [b"\0" * 100, b"R\0/p\0\0G\0/p/.git\0\0", b"?\0x\0\0"])
def test_a_marker_that_a_crash_of_the_machine_left_keeps_nothing_from_starting(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "marker").write_bytes(data)
    marker = Marker(str(tmp_path / "marker"))
    assert marker.left is None and marker.shared is None
    marker.close()
