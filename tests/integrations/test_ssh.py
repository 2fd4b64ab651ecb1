"""The real OpenSSH client in a sandbox."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.client import Client, attach
from sandbox.errors import SandboxError
from sandbox.integrations.ssh import client_settings, start_server
from tests.sandboxes import home, program

__all__ = ["home"]
pytestmark = pytest.mark.walls


@pytest.fixture
def sandbox(home: Path, tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox({"filesystem": {"root": str(tmp_path / "project")}}) as one:
        yield one


@pytest.fixture
def settings(sandbox: Sandbox, tmp_path: Path) -> Path:
    done = subprocess.run([*program(), "ssh-config", sandbox.id], capture_output=True, text=True, check=True)
    file = tmp_path / "ssh_config"
    file.write_text(done.stdout)
    return file


def ssh(settings: Path, sandbox: Sandbox, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = ["ssh", "-F", str(settings), *words[:-1], f"sandbox-{sandbox.id}", words[-1]]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **more)  # type: ignore[call-overload,no-any-return]


def test_commands_run_inside_with_its_environment_and_their_status_comes_back(settings: Path, sandbox: Sandbox) -> None:
    done = ssh(settings, sandbox, "echo $SSL_CERT_FILE; cat; ls /root/.ssh; exit 3", input="typed\n")
    assert done.returncode == 3 and done.stdout.split() == [sandbox.exec("echo $SSL_CERT_FILE").stdout.strip(), "typed"]


def test_a_terminal_works(settings: Path, sandbox: Sandbox) -> None:
    assert ssh(settings, sandbox, "-tt", "tty").stdout.startswith("/dev/pts/")


def test_files_are_copied_both_ways(settings: Path, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "up").write_text("content")
    inside = f"sandbox-{sandbox.id}:/tmp/there"
    for source, target in ((str(tmp_path / "up"), inside), (inside, str(tmp_path / "down"))):
        subprocess.run(["scp", "-q", "-F", str(settings), source, target], check=True, timeout=60)
    assert sandbox.read_text("/tmp/there") == (tmp_path / "down").read_text() == "content"


def test_a_tree_is_synchronised_both_ways(settings: Path, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "up" / "below").mkdir(parents=True)
    (tmp_path / "up" / "below" / "a").write_text("content")
    inside = f"sandbox-{sandbox.id}:/tmp/tree/"
    for source, target in ((f"{tmp_path}/up/", inside), (inside, f"{tmp_path}/down/")):
        subprocess.run(["rsync", "-rt", "-e", f"ssh -F {settings}", source, target], check=True, timeout=60)
    assert sandbox.read_text("/tmp/tree/below/a") == (tmp_path / "down" / "below" / "a").read_text() == "content"


def test_the_private_key_stays_outside_and_nothing_is_left_inside(settings: Path, sandbox: Sandbox, home: Path) -> None:
    key = (home / "ssh" / "key").read_text()
    assert (home / "ssh" / "key").stat().st_mode & 0o077 == 0
    seen = ssh(settings, sandbox, "cat /tmp/.sandbox-ssh-*/* 2>/dev/null").stdout
    assert seen and key.splitlines()[3] not in seen
    assert "ssh" not in sandbox.exec("ls -A /tmp").stdout


def test_no_agent_and_no_display_is_forwarded(settings: Path, sandbox: Sandbox) -> None:
    shown = subprocess.run(
        ["ssh", "-G", "-F", str(settings), f"sandbox-{sandbox.id}"], capture_output=True, text=True, check=True
    ).stdout
    assert {"forwardagent no", "forwardx11 no", "permitlocalcommand no"} <= set(shown.splitlines())
    # Whoever poses as the server cannot ask the person for a password.
    assert {"passwordauthentication no", "kbdinteractiveauthentication no"} <= set(shown.splitlines())


@pytest.fixture
def planted(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Client, Path]]:
    """A sandbox in which a tenant can put programs before those of the system."""
    place = tmp_path / "project" / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    with Sandbox({"filesystem": {"root": str(tmp_path / "project")}}) as one, attach(one.id) as client:
        yield client, place


def plant(place: Path, name: str, body: str) -> None:
    (place / name).write_text(f"#!/bin/sh\n{body}\n")
    (place / name).chmod(0o755)


@pytest.mark.parametrize(
    "printed",
    ["user\\n    ProxyCommand touch planted", "-oProxyCommand=x", "-l", "%%h", "²³", "a b", "$(id)", "", "x" * 65],
)
def test_what_a_tenant_calls_its_user_cannot_add_to_the_settings(planted: tuple[Client, Path], printed: str) -> None:
    client, place = planted
    plant(place, "id", f"printf -- '{printed}'")
    with pytest.raises(SandboxError, match="no name that ssh could use"):
        client_settings(client, ["sandbox"])


@pytest.mark.parametrize("name", ["id", "env", "ssh-keygen"])
def test_a_program_of_a_tenant_that_never_ends_does_not_hold_the_owner(
    planted: tuple[Client, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, place = planted
    plant(place, name, "exec /usr/bin/sleep 1000")
    client_settings(client, ["sandbox"]) if name != "id" else None  # makes the key
    monkeypatch.setattr("sandbox.integrations.ssh.PATIENCE", 0.5)
    with pytest.raises(SandboxError):
        start_server(client)


def test_a_program_that_a_tenant_left_on_the_owners_path_is_not_run_outside(planted: tuple[Client, Path]) -> None:
    client, place = planted
    plant(place, "ssh-keygen", f'touch {place}/ran-outside; exec /usr/bin/ssh-keygen "$@"')
    client_settings(client, ["sandbox"])
    assert not (place / "ran-outside").exists()
