"""`filesystem.also_at`: a second path that leads to the project, with the same walls on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.errors import ConfigError

pytestmark = pytest.mark.walls


def test_the_project_is_reached_by_the_other_path_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with Sandbox({"filesystem": {"root": str(tmp_path), "also_at": "/home/somebody-else"}}) as sb:
        assert sb.exec("cat /home/somebody-else/file; echo more > /home/somebody-else/new").stdout == "here"
        assert sb.read_text("/home/somebody-else/new") == "more\n"
    assert (tmp_path / "new").read_text() == "more\n"


def test_what_is_blocked_is_blocked_by_the_other_path(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SECRET=1")
    with Sandbox({"filesystem": {"root": str(tmp_path), "also_at": "/home/somebody-else"}}) as sb:
        assert "SECRET" not in sb.exec("cat /home/somebody-else/.env").stdout
        assert sb.exec("echo x > /home/somebody-else/.env").exit_code != 0


@pytest.mark.parametrize("path", ["/home", "/home/", "/home/../etc", "/home/a/b", "/etc", "home/a", "/home/.a", ""])
def test_another_place_than_a_home_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="also_at"):
        Sandbox({"filesystem": {"root": str(tmp_path), "also_at": path}})


def test_where_something_is_it_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/own")
    with Sandbox({"filesystem": {"root": str(tmp_path), "also_at": "/home/own"}}) as sb:
        assert sb.exec("test -L /home/own").exit_code != 0


def test_the_client_that_starts_a_kept_command_sees_all_of_its_output(tmp_path: Path) -> None:
    with Sandbox({"filesystem": {"root": str(tmp_path)}}) as sb:
        for number in range(5):
            process = sb.spawn("head -c 300000 /dev/zero", keep=f"k{number}")
            assert sum(len(chunk.data) for chunk in process.chunks()) == 300_000
            process.close()
        assert len(sb._processes._kept) == 1  # those that have ended are forgotten
