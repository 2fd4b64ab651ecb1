"""What a sandbox is given only when it is handed out: variables, secrets, the project."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sandbox import InvalidArgument, Pool, Sandbox
from sandbox.errors import ConfigError
from tests.network.lab import LoopThread, Origin, Pki
from tests.pool.waiting import running

pytestmark = pytest.mark.walls

VALUE = "sk-the-real-value-0123456789"

#: Tells what a tenant can read and change of a project.
PROBE = """
for file in .env config/id_rsa notes.txt .git/config .git/hooks/pre-commit; do
    printf '%s: ' $file; head -c 40 $file 2>/dev/null || echo unreadable
done
for file in .env notes.txt .git/config .git/hooks/pre-commit .git/hooks/new .claude/settings.json .vscode/tasks.json; do
    printf '%s: ' $file; (mkdir -p $(dirname $file); echo planted >> $file) 2>/dev/null && echo written || echo kept
done
"""


def fill_project(directory: Path) -> Path:
    """A repository with what guards are for."""
    directory.mkdir()
    subprocess.run(["git", "init", "-q", str(directory)], check=True)
    (directory / "config").mkdir()
    for name, text in (
        (".env", "TOKEN=real"), ("config/id_rsa", "PRIVATE KEY"), ("notes.txt", "plain\n"),
        (".git/hooks/pre-commit", "#!/bin/sh\n"),
    ):  # fmt: skip
        (directory / name).write_text(text)
    return directory


def test_variables_are_there_in_every_command(home: Path) -> None:
    with Pool({"environment": {"set": {"BOTH": "early", "EARLY": "1"}}}, size=1) as pool:
        pool.fill(60)
        with pool.get(environment={"BOTH": "late", "LATE": "2"}) as sandbox:
            for _ in range(2):
                assert sandbox.exec("echo $BOTH $EARLY $LATE").stdout == "late 1 2\n"
            assert sandbox.environment == {"BOTH": "late", "EARLY": "1", "LATE": "2"}
        with pool.get() as other:
            assert other.exec("echo $BOTH $EARLY $LATE").stdout == "early 1\n"


@pytest.mark.parametrize("given", [{"A=B": "x"}, {"": "x"}, {"A": 1}])
def test_an_invalid_variable_is_refused_and_costs_no_sandbox(home: Path, given: dict[str, Any]) -> None:
    with Pool(size=1) as pool:
        pool.fill(60)
        with pytest.raises((InvalidArgument, ConfigError)):
            pool.get(environment=given)
        assert pool.stats().handed_out == 0


def test_a_secret_that_is_given_late_goes_to_its_host_and_nowhere_else(home: Path, tmp_path: Path) -> None:
    thread, pki = LoopThread(), Pki(tmp_path)
    origins = {one: Origin(thread, pki.server_context([one], ["http/1.1"])) for one in ("api.test", "other.test")}
    network = {"allowed_hosts": ["api.test:*", "other.test:*", "127.0.0.1"], "ca_certificates": [pki.file]}
    try:
        with Pool({"network": network}, size=1, resolve=lambda host, port: ["127.0.0.1"]) as pool:
            pool.fill(60)
            secrets = {"KEY": {"value": VALUE, "hosts": ["api.test:*"]}}
            with pool.get(secrets=secrets, environment={"API_KEY": "${KEY}"}) as sandbox:
                asked = 'curl -sS -H "Authorization: Bearer $API_KEY" https://'
                holder = sandbox.exec("echo $API_KEY").stdout.strip()
                assert holder.startswith("SANDBOX_PLACEHOLDER_")
                sandbox.exec(f"{asked}api.test:{origins['api.test'].port}/", check=True)
                refused = sandbox.exec(f"{asked}other.test:{origins['other.test'].port}/")
        assert dict(origins["api.test"].seen[0]["headers"])["authorization"] == f"Bearer {VALUE}"
        assert "must not be sent to other.test" in refused.stdout
        assert origins["other.test"].seen == []
        kept = [file for file in home.rglob("*") if file.is_file()]
        assert kept and not [file for file in kept if VALUE.encode() in file.read_bytes()]
    finally:
        for one in origins.values():
            one.close()
        thread.close()


def test_a_file_that_a_late_secret_is_read_from_is_hidden(home: Path, project: Path) -> None:
    (project / "key.txt").write_text(VALUE)
    with Pool(size=1) as pool:
        pool.fill(60)
        with pool.get() as before:
            assert before.exec("cat key.txt").stdout == VALUE
        secrets = {"KEY": {"from_file": str(project / "key.txt"), "hosts": ["api.test"]}}
        with pool.get(secrets=secrets) as sandbox:
            assert VALUE not in sandbox.exec("cat key.txt").stdout


def test_a_secret_that_cannot_be_used_is_an_error_and_leaves_nothing(home: Path) -> None:
    with Pool(size=1) as pool:
        for wrong in ({"value": "two\nlines of it", "hosts": ["api.test"]}, {"valeu": "x", "hosts": []}):
            pool.fill(60)
            with pytest.raises(ConfigError, match="KEY"):
                pool.get(secrets={"KEY": wrong})
    assert not running(home)


def test_without_a_gate_secrets_are_refused(home: Path) -> None:
    with Pool({"engine": "none"}, size=1) as pool, pytest.raises(ConfigError, match="needs a gate"):
        pool.get(secrets={"KEY": {"value": VALUE, "hosts": ["api.test"]}})


def test_a_project_that_is_given_late_is_guarded_as_one_that_was_there_from_the_start(
    home: Path, tmp_path: Path
) -> None:
    early, late = fill_project(tmp_path / "early"), fill_project(tmp_path / "late")
    with Sandbox({"filesystem": {"root": str(early)}}) as sandbox:
        expected = sandbox.exec(PROBE).stdout
    with Pool(size=1, late_project=True) as pool:
        pool.fill(60)
        with pool.get(project=late, environment={"GIVEN": "yes"}) as sandbox:
            assert sandbox.directory == str(late)
            assert sandbox.exec(PROBE).stdout == expected
            assert sandbox.exec("echo $GIVEN").stdout == "yes\n"
    assert (
        ".env: unreadable" in expected
        and ".git/hooks/pre-commit: kept" in expected
        and "notes.txt: written" in expected
    )
    assert (late / ".env").read_text() == "TOKEN=real"
    assert not running(home)


def test_late_projects_may_differ(home: Path, tmp_path: Path) -> None:
    with Pool({"filesystem": {"overlay": True}}, size=2, late_project=True) as pool:
        for name in ("one", "two"):
            directory = tmp_path / name
            directory.mkdir()
            (directory / "name").write_text(name)
            with pool.get(project=str(directory)) as sandbox:
                assert sandbox.exec("cat name; echo changed > name").stdout == name
                assert [change.path for change in sandbox.changes()] == ["name"]
            assert (directory / "name").read_text() == name


def test_a_launcher_from_before_a_mount_is_not_used(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Pool(size=1, late_project=True) as pool:
        pool.fill(60)
        monkeypatch.setattr("sandbox.pool.launchers.mount_table", lambda: os.urandom(8))
        with pool.get(project=tmp_path) as sandbox:
            assert sandbox.exec("echo fresh").stdout == "fresh\n"
        assert pool.stats().unhealthy >= 1


def test_a_project_is_given_early_or_late_and_never_by_halves(home: Path, tmp_path: Path) -> None:
    with Pool(size=1) as pool, pytest.raises(InvalidArgument, match="late_project=True"):
        pool.get(project=tmp_path)
    with Pool(size=1, late_project=True) as pool, pytest.raises(InvalidArgument, match="say project="):
        pool.get()
    with pytest.raises(ConfigError, match="cannot take a project late"):
        Pool({"engine": "none"}, late_project=True)
