"""Logins on the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sandbox.state.paths import project_word
from tests.sandboxes import Command

pytestmark = pytest.mark.walls

REAL = "sk-ant-oat01-" + "aB3" * 30


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "person"
    (place / ".claude").mkdir(parents=True)
    oauth = {"accessToken": REAL, "refreshToken": REAL.replace("oat", "ort"), "expiresAt": 1, "scopes": ["a"]}
    (place / ".claude" / ".credentials.json").write_text(json.dumps({"claudeAiOauth": oauth}))
    monkeypatch.setenv("HOME", str(place))
    return place


@pytest.mark.usefixtures("person")
def test_a_setting_is_enough_and_the_file_inside_has_placeholders(cli: Command) -> None:
    assert cli("config", "--global", "set", "credentials.claude.save_login", "false").returncode == 0
    assert cli("config", "--global", "set", "credentials.claude.use", "claude").returncode == 0
    seen = [cli("run", "--", "cat", "/proc/self/environ").stdout]
    seen += [cli("run", "--", "sh", "-c", "cat ~/.claude/.credentials.json").stdout for _ in range(2)]
    assert "sk-ant-oat01-" in seen[1] and seen[1] == seen[2]  # the same in the next run
    assert REAL not in "".join(seen)
    shown = cli("config", "show").stdout
    assert REAL not in shown and "sk-ant" not in shown


def test_a_login_made_inside_one_project_is_shared_by_its_owner_alone(cli: Command, person: Path, home: Path) -> None:
    (person / ".claude" / ".credentials.json").unlink()
    missing = cli("profile", "share-login", "claude")
    assert missing.returncode == 125 and "no login of claude was made inside this project" in missing.stderr
    (home / "credentials").mkdir(mode=0o700, parents=True, exist_ok=True)
    oauth = {"claudeAiOauth": {"accessToken": REAL, "refreshToken": REAL.replace("oat", "ort"), "expiresAt": 1}}
    (home / "credentials" / f"claude@{project_word(os.getcwd())}.json").write_text(json.dumps(oauth))
    (other := person / "other").mkdir()
    look = ("run", "--profile", "claude", "--root", str(other), "--", "sh", "-c", "cat ~/.claude/.credentials.json")
    before = cli(*look)
    assert before.stdout == "" and "`sandbox profile share-login claude`" in before.stderr
    assert cli("profile", "share-login", "claude").returncode == 0
    after = cli(*look)
    assert "sk-ant-oat01-" in after.stdout and REAL not in after.stdout


def test_a_mistake_is_reported_before_anything_is_written(cli: Command) -> None:
    done = cli("config", "--global", "set", "credentials.claude.use", "claud")
    assert done.returncode != 0 and "there is no ready-made credential 'claud'" in done.stderr
    done = cli("config", "--global", "set", "credentials.x.refresh.hosts", "[https://no.example/]")
    assert done.returncode != 0


def test_a_project_has_none(cli: Command, person: Path) -> None:
    Path(".sandbox").mkdir()
    Path(".sandbox", "config.yaml").write_text("credentials: {claude: {}}\n")
    done = cli("run", "--", "sh", "-c", "ls -A ~")
    assert done.stdout == "" and "credentials" in done.stderr and "may only tighten" in done.stderr
