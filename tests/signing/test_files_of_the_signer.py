"""The files that `signing` names: tenants neither read the key nor change what the signer runs or believes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox import Sandbox
from sandbox.config.model import Config
from sandbox.errors import ConfigError
from sandbox.signer.run import backend_of
from sandbox.signer.trusted_files import check
from sandbox.signing.backends.base import Order, SigningFailed
from sandbox.signing.backends.capability import hash_of
from sandbox.signing.calls import keccak
from tests.signing.keys import ADDRESS, POLICY, TOKEN, transaction
from tests.signing.signers import RunningSigner

pytestmark = pytest.mark.walls
TAMPER = "cat etc/key.json; for one in etc/*; do echo evil > $one; mv $one x; rm -f $one; done; mv etc other; ls -a etc"


def project_with(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A project that holds everything that the signer needs, and the policy that says so."""
    place = tmp_path / "project" / "etc"
    place.mkdir(parents=True)
    for name in ("key.json", "sign.sh", "module.py", "abi [1].json"):
        (place / name).write_text("private")
    (place / "sign.sh").chmod(0o755)
    os.link(place / "key.json", place.parent / "copy")
    os.link(place / "sign.sh", place.parent / "again")
    command = [str(place / "sign.sh"), "-x", str(place / "module.py")]
    contracts = {TOKEN: {"abi": str(place / "abi [1].json")}}
    return place.parent, {"keystore": str(place / "key.json"), "command": command, "contracts": contracts}


@pytest.mark.parametrize("enabled", [False, True])
def test_tenants_neither_read_the_key_nor_change_what_the_signer_runs(tmp_path: Path, enabled: bool) -> None:
    project, policy = project_with(tmp_path)
    with Sandbox({"filesystem": {"root": str(project)}, "signing": {**policy, "enabled": enabled}}) as box:
        said = box.exec(["sh", "-c", f"{TAMPER}; cat copy; echo evil > again; echo fine > new; cat new"]).stdout
    assert "private" not in said
    assert said.endswith("fine\n")
    assert {one.read_text() for one in (project / "etc").iterdir()} == {"private"}
    assert len(list((project / "etc").iterdir())) == 4


def test_a_sandbox_that_does_not_know_of_signing_hides_the_key_of_the_signer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "project" / "deep"
    (tmp_path / "project").mkdir()
    running = RunningSigner(home)
    key = tmp_path / "project" / "key.json"
    running.end()
    (home / "key.json").rename(key)
    from sandbox.guards.signing_files import note

    monkeypatch.setenv("SANDBOX_HOME", str(home))
    note(Config.read({"signing": {"keystore": str(key)}}).signing)
    with Sandbox({"filesystem": {"root": str(key.parent)}}) as box:
        assert "ciphertext" not in box.exec(["cat", "key.json"]).stdout
        box.exec(["sh", "-c", "echo x > key.json"])
    assert "ciphertext" in key.read_text()


def test_the_signer_does_not_start_with_files_where_tenants_write(tmp_path: Path) -> None:
    project, policy = project_with(tmp_path)
    link = project / "link"
    link.symlink_to("/bin/true")
    alone: list[dict[str, Any]] = [
        {"keystore": policy["keystore"]},
        {"contracts": policy["contracts"]},
        *({"backend": "command", "address": ADDRESS, "command": command} for command in (
            [policy["command"][0]], [sys.executable, policy["command"][2]], [str(link)],
        )),
    ]  # fmt: skip
    for one in alone:
        check(Config.read({"signing": one}).signing)  # nobody has written there yet
    with Sandbox({"filesystem": {"root": str(project)}}):
        pass
    for one in alone:
        with pytest.raises(ConfigError, match="where sandboxes write"):
            check(Config.read({"signing": one}).signing)


def test_a_program_is_not_run_once_tenants_write_where_it_is(tmp_path: Path) -> None:
    from sandbox.policy.signing.requests import read_request

    project, policy = project_with(tmp_path)
    (project / "etc" / "sign.sh").write_text(f"#!/bin/sh\necho run >> {tmp_path}/ran\n")
    signing = {**POLICY, "backend": "command", "address": ADDRESS, "command": policy["command"]}
    backend = backend_of(Config.read({"signing": signing}), None)
    asked = read_request("transaction", transaction(), keccak)
    order = Order("x", asked, hash_of("transaction", asked.plain()), False)
    with pytest.raises(SigningFailed, match="not a signature"):
        backend.sign_transaction(order)
    with Sandbox({"filesystem": {"root": str(project)}}), pytest.raises(SigningFailed, match="where sandboxes write"):
        backend.sign_transaction(order)
    assert (tmp_path / "ran").read_text() == "run\n"


def sign_new(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sandbox.cli.main", "sign", "new", *words, "--password-fd", "0"],
        input="a long password\n", cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_new_key_is_kept_out_of_repositories_unless_one_insists(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    refused = sign_new("key.json", cwd=tmp_path)
    assert (refused.returncode != 0, "git" in refused.stderr) == (True, True)
    assert not (tmp_path / "key.json").exists()
    assert sign_new("key.json", "--yes", cwd=tmp_path).returncode == 0
    assert sign_new(cwd=tmp_path).returncode == 0
    assert json.loads((Path(os.environ["SANDBOX_HOME"]) / "signing" / "key.json").read_text())["crypto"]
