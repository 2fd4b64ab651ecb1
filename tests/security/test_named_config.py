"""The file that `--config` or `srt -s` names, in the project: it decides what tenants may do in the next run."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.config.model import Config
from sandbox.config.named_file import keep_from_tenants
from sandbox.errors import SandboxError
from sandbox.guards.repositories import MARGIN
from tests.network.lab import Pki
from tests.patience import until
from tests.sandboxes import Command, cli, home

__all__ = ["cli", "home"]
pytestmark = pytest.mark.walls

VALUE = "a-literal-value"
PLAIN = "network: {allowed_hosts: [packages.example.org]}\n"
SECRET = f"network: {{secrets: {{KEY: {{value: {VALUE}, hosts: [api.example.com]}}}}}}\n"
CHANGES = "echo mode: 'off' >> own.yaml; rm -f own.yaml; mv own.yaml other.yaml; echo mode: 'off' > own.yaml"


@pytest.mark.parametrize("options", [(), ("--overlay",)], ids=["as it is", "overlay"])
@pytest.mark.parametrize("text", [PLAIN, SECRET], ids=["plain", "with a secret"])
def test_tenants_cannot_change_the_file_that_the_next_run_obeys(
    cli: Command, tmp_path: Path, text: str, options: tuple[str, ...]
) -> None:
    project = tmp_path / "a [b]"  # no pattern
    project.mkdir()
    file = project / "own.yaml"
    file.write_text(text)
    cli("run", "--config", "own.yaml", *options, "--", "sh", "-c", CHANGES, cwd=project)
    cli("apply", "--yes", cwd=project)
    assert file.read_text() == text
    assert not (project / "other.yaml").exists()


@pytest.mark.parametrize("text", [PLAIN, SECRET], ids=["plain", "with a secret"])
def test_nor_in_a_later_run_that_does_not_name_it(cli: Command, tmp_path: Path, text: str) -> None:
    project = tmp_path / "place"
    project.mkdir()
    file = project / "own.yaml"
    file.write_text(text)
    cli("run", "--config", "own.yaml", "--", "true", cwd=project)
    done = cli("run", "--", "sh", "-c", f"touch written; cat own.yaml; {CHANGES}", cwd=project)
    assert (project / "written").exists()
    assert file.read_text() == text
    assert VALUE not in done.stdout
    file.rename(tmp_path / "moved.yaml")  # what is gone binds nobody
    assert cli("run", "--", "sh", "-c", "echo mine > own.yaml", cwd=project).returncode == 0
    assert file.read_text() == "mine\n"


def test_the_person_is_told_that_a_sandbox_which_runs_already_can_change_it(
    cli: Command, home: Path, tmp_path: Path
) -> None:
    project = tmp_path / "place"
    project.mkdir()
    file = project / "own.yaml"
    file.write_text(PLAIN)
    told = f"{file} can be changed by a sandbox that has been running in {project}"
    with Sandbox({"filesystem": {"root": str(project)}}) as earlier:
        assert told in cli("run", "--config", "own.yaml", "--", "true", cwd=project).stderr
        assert earlier.exec("echo >> own.yaml").ok
        assert told in cli("run", "--", "true", cwd=project).stderr
    (noted,) = (home / "named").iterdir()
    until(lambda: time.time_ns() - MARGIN > noted.lstat().st_ctime_ns)  # a sandbox that starts sooner counts as older
    with Sandbox({"filesystem": {"root": str(project)}}) as later:
        assert told not in cli("run", "--config", "own.yaml", "--", "true", cwd=project).stderr
        assert not later.exec("echo >> own.yaml").ok


def test_nothing_runs_when_a_later_run_would_not_know_the_file(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(PLAIN)

    def full(*given: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    config = Config()
    os.makedirs(os.environ["SANDBOX_HOME"], exist_ok=True)
    monkeypatch.setattr(os, "symlink", full)
    with pytest.raises(SandboxError, match="No space left"):
        keep_from_tenants(config, str(file), config)


def test_tenants_can_read_it_unless_it_holds_a_secret(cli: Command, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(PLAIN)
    words = ("run", "--config", "own.yaml", "--", "cat", "own.yaml")
    assert cli(*words, cwd=tmp_path).stdout == PLAIN
    file.write_text(SECRET)
    done = cli(*words, cwd=tmp_path)
    assert done.returncode != 0
    assert VALUE not in done.stdout


def test_tenants_cannot_add_an_authority_that_the_gate_trusts(cli: Command, tmp_path: Path) -> None:
    file = Path(Pki(tmp_path).file).rename(tmp_path / "ca.crt")
    before = file.read_bytes()
    (tmp_path / "own.yaml").write_text("network: {ca_certificates: [ca.crt]}\n")
    change = "touch written; cat own.yaml >> ca.crt; rm -f ca.crt; mv ca.crt other.crt"
    cli("run", "--config", "own.yaml", "--", "sh", "-c", change, cwd=tmp_path)
    assert (tmp_path / "written").exists()
    assert file.read_bytes() == before


def test_tenants_cannot_change_the_settings_of_srt(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"network": {"allowedDomains": []}, "filesystem": {"allowWrite": [str(tmp_path)]}}))
    before = file.read_text()
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "SANDBOX_HOME": str(tmp_path / "home/.sandbox")}
    change = "touch written; echo >> settings.json; rm -f settings.json"
    words = [sys.executable, "-m", "sandbox.cli.srt", "-s", "settings.json", "--", "sh", "-c", change]
    subprocess.run(words, cwd=tmp_path, env=environment, check=False, timeout=180)
    assert (tmp_path / "written").exists()
    assert file.read_text() == before
