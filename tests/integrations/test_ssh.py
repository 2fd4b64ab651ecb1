"""The real OpenSSH client in a sandbox."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox
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
