"""The kill switch: everything ends at once, and nothing starts, in any process, until it is released."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox import Denied, Sandbox, query_audit_feed
from sandbox.config.home import home as own_home
from sandbox.errors import SandboxError
from sandbox.network.secrets.stored_key import placeholder_key
from sandbox.registry import kill_switch
from sandbox.registry.registration import SWITCH
from sandbox.registry.registry import entries
from sandbox.service import pull_kill_switch, release_kill_switch
from tests.sandboxes import Command, cli, home

__all__ = ["cli", "home"]


def test_every_sandbox_of_every_process_ends_and_none_starts(cli: Command, home: Path) -> None:
    other = cli("run", "--detach", "--", "sleep", "1000")
    assert other.returncode == 0, other.stderr
    with Sandbox() as mine:
        done = pull_kill_switch(by="test", reason="drill", close_own=mine.close)
        assert sorted(done) == sorted([mine.id, other.stdout.strip()])
        assert not any(one.running for one in entries(str(home)))
    with pytest.raises(Denied, match="kill switch"):
        Sandbox()
    refused = cli("run", "--", "true")
    assert refused.returncode == 125
    assert "kill switch" in refused.stderr
    assert not any(one.running for one in entries(str(home)))
    assert release_kill_switch(by="test")
    assert cli("run", "--", "true").returncode == 0


def test_it_is_on_the_record(home: Path) -> None:
    pull_kill_switch(by="somebody", reason="a drill")
    release_kill_switch(by="somebody else")
    told = [(one["severity"], one["summary"]) for one in query_audit_feed(type="security_kill_switch")[-3:]]
    assert told == [
        ("critical", "pulled by somebody"),
        ("critical", "0 sandboxes ended"),
        ("critical", "released by somebody else"),
    ]


def test_placeholders_that_programs_kept_stand_for_nothing_any_more(home: Path) -> None:
    before = placeholder_key()
    assert placeholder_key() == before
    pull_kill_switch(by="test")
    release_kill_switch(by="test")
    assert placeholder_key() != before


def test_a_sandbox_that_is_being_built_sees_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was entered in the registry before the switch was pulled, and is ready after it."""
    building = Sandbox._serve

    def pulled_meanwhile(self: Sandbox) -> None:
        building(self)
        with open(os.path.join(own_home(), SWITCH), "x"):
            pass

    monkeypatch.setattr(Sandbox, "_serve", pulled_meanwhile)
    with pytest.raises(Denied, match="kill switch"):
        Sandbox()
    assert not any(one.running for one in entries(str(home)))


def test_the_command_pulls_says_and_releases(cli: Command, home: Path) -> None:
    assert cli("panic", "--status").returncode == 0
    assert "0 sandboxes ended" in cli("panic", "--reason", "drill\x1b[31m").stdout
    said = cli("panic", "--status")
    assert said.returncode == 1
    assert "drill" in said.stdout and "\x1b" not in said.stdout
    assert cli("panic").returncode == 0  # again is no error
    assert cli("panic", "--release").stdout == "released\n"
    assert cli("panic", "--release").stdout == "the kill switch is not pulled\n"
    assert kill_switch.state(str(home)) is None


def test_a_broken_project_does_not_keep_it_from_being_pulled(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "broken"
    (project / ".sandbox").mkdir(parents=True)
    (project / ".sandbox/config.yaml").write_text("[")
    monkeypatch.chdir(project)
    pull_kill_switch(by="test")
    assert (home / SWITCH).exists()
    assert query_audit_feed(type="security_kill_switch")[-1]["summary"] == "0 sandboxes ended"
    assert release_kill_switch(by="test")


def test_placeholders_that_cannot_be_revoked_keep_nothing_running(cli: Command, home: Path) -> None:
    other = cli("run", "--detach", "--", "sleep", "1000")
    assert other.returncode == 0, other.stderr
    (Path(own_home()) / "credentials" / "key").mkdir(parents=True)  # which cannot be unlinked
    with pytest.raises(SandboxError, match="still stand for secrets"):
        pull_kill_switch(by="test")
    assert not any(one.running for one in entries(str(home)))
    assert (home / SWITCH).exists()


def test_a_record_that_cannot_be_written_does_not_keep_it_from_being_pulled(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir(exist_ok=True)
    (home / "file").touch()
    (home / "config.yaml").write_text(f"audit: {{directory: {home}/file/audit}}\n")
    pull_kill_switch(by="test")
    assert (home / SWITCH).exists()
    assert "could not be recorded" in capsys.readouterr().err
    assert release_kill_switch(by="test")
