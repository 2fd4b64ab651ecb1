"""Files of the user's own that commands change: links are followed, modes kept; and values that are no values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.cli import hook_settings
from sandbox.cli.main import main


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def test_a_linked_config_stays_a_link(own: Path) -> None:
    real, link = own / "dotfiles.yaml", own / "home" / "config.yaml"
    real.write_text("# mine\n")
    link.symlink_to(real)
    assert main(["config", "--global", "set", "ui.language", "en"]) == 0
    assert link.is_symlink() and "language: en" in real.read_text()
    assert main(["config", "--global", "unset", "ui.language"]) == 0
    assert link.is_symlink() and "language" not in real.read_text()


def test_claude_codes_settings_keep_their_mode_and_stay_a_link(own: Path) -> None:
    real, link = own / "settings.json", own / ".claude" / "settings.json"
    link.parent.mkdir()
    real.write_text("{}")
    real.chmod(0o600)
    link.symlink_to(real)
    hook_settings._save(str(link), {"a": 1})
    assert link.is_symlink() and json.loads(real.read_text()) == {"a": 1}
    assert real.stat().st_mode & 0o777 == 0o600


def test_a_link_in_the_project_leads_no_settings_elsewhere(own: Path) -> None:
    real, link = own / "elsewhere.json", own / "project" / ".claude" / "settings.json"
    link.parent.mkdir()
    real.write_text("{}")
    link.symlink_to(real)
    hook_settings._save(str(link), {"a": 1})
    assert real.read_text() == "{}" and json.loads(link.read_text()) == {"a": 1}


@pytest.mark.parametrize(
    "words", [["--wait", "soon"], ["--upload-limit", "much"], ["token", "new", "--scope", "read", "--expires", "never"]]
)
def test_an_invalid_value_is_reported_in_one_line(
    own: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["serve", *words]) == 125
    assert capsys.readouterr().err.startswith(f"sandbox: {words[-2]}: must be a")
