"""Seatbelt as an engine.

No Mac is here to enforce the profile. A stand-in for sandbox-exec notes it and runs the command, so everything
around it is tried: commands, files, the gate, the variables, what is left behind.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import Sandbox
from sandbox.engines import seatbelt_profile
from sandbox.errors import ConfigError, EngineUnavailable
from tests.engines.conformance import Conformance
from tests.network.room import Origin

# The program `sandbox`, with the stand-in.
COMMAND = """
import sys
from sandbox.engines import seatbelt_profile
from sandbox.cli.main import main
seatbelt_profile.SANDBOX_EXEC = sys.argv[1]
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture(autouse=True)
def stand_in(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path_factory.mktemp("stand-in")
    program = place / "sandbox-exec"
    program.write_text(f'#!/bin/sh\n[ "$1" = -p ] && printf %s "$2" > {place}/profile\nshift 3\nexec "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(seatbelt_profile, "SANDBOX_EXEC", str(program))
    return place


class TestSeatbelt(Conformance):
    engine = "seatbelt"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(made)
    return made


def asked(**sections: object) -> dict[str, object]:
    return {"engine": "seatbelt", **sections}


def test_curl_goes_through_the_gate_because_its_environment_says_so(project: Path, origin: Origin) -> None:
    network = {"network": {"allowed_hosts": ["good.test", "127.0.0.1"]}}
    with Sandbox(asked(**network), resolve=lambda host, port: ["127.0.0.1"]) as sandbox:
        assert "GET /a" in sandbox.exec(f"curl -sS http://good.test:{origin.port}/a").stdout
        assert "X-Proxy-Error: blocked-by-allowlist" in sandbox.exec("curl -sS -i http://evil.test/").stdout


def test_the_status_is_the_commands_and_nothing_is_left_behind(project: Path) -> None:
    run = [
        sys.executable,
        "-c",
        COMMAND,
        seatbelt_profile.SANDBOX_EXEC,
        "run",
        "--engine",
        "seatbelt",
        "--",
        "sh",
        "-c",
    ]
    for script, status in (('touch "$TMPDIR/x" "$HOME/y"; exit 7', 7), ("kill -TERM $$", 143)):
        assert subprocess.run([*run, script], check=False).returncode == status
    assert os.listdir(project.parent / "tmp") == []


def test_a_tenant_has_no_descriptor_but_its_three_streams(project: Path) -> None:
    """It had the guest's own way to the owner, and whatever the owner had left inheritable."""
    show = "import os\nfor fd in range(256):\n  try: print(fd, os.fstat(fd) and '')\n  except OSError: pass"
    with open(project / "owners", "w+") as file:
        os.set_inheritable(file.fileno(), True)
        with Sandbox(asked()) as sandbox:
            seen = sandbox.exec([sys.executable, "-c", show]).stdout.split()
            with sandbox.spawn([sys.executable, "-c", show], pty=(24, 80)) as process:
                on_a_terminal = b"".join(chunk.data for chunk in process.chunks()).split()
    assert (seen, on_a_terminal) == (["0", "1", "2"], [b"0", b"1", b"2"])


def test_the_profile_names_the_gates_own_port_and_the_project(project: Path, stand_in: Path) -> None:
    with Sandbox(asked()) as sandbox:
        port = sandbox.exec('echo "$HTTP_PROXY"').stdout.strip().rpartition(":")[2]
    text = (stand_in / "profile").read_text()
    assert f'(remote ip "localhost:{port}")' in text and f'{project}")' in text


def test_secrets_are_placeholders_and_the_authority_is_trusted(project: Path) -> None:
    secret = {"value": "the-real-one", "hosts": ["api.test"]}
    network = {"network": {"secrets": {"KEY": secret}}, "environment": {"set": {"KEY": "${KEY}"}}}
    with Sandbox(asked(**network)) as sandbox:
        seen = sandbox.exec("env").stdout
        assert "the-real-one" not in seen and "KEY=SANDBOX_PLACEHOLDER_" in seen
        assert "BEGIN CERTIFICATE" in sandbox.exec('cat "$SSL_CERT_FILE"').stdout


def test_a_stranger_on_the_loopback_cannot_use_the_gate(project: Path) -> None:
    with Sandbox(asked(network={"allowed_hosts": ["good.test"]})) as sandbox:
        port = int(sandbox.exec('echo "$HTTP_PROXY"').stdout.strip().rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"CONNECT good.test:443 HTTP/1.1\r\n\r\n")
            assert b" 407 " in stranger.recv(1024)


@pytest.mark.parametrize(
    ("sections", "name"),
    [
        ({"limits": {"memory": "1g"}}, "limits.memory"),
        ({"mode": "max"}, "filesystem.overlay"),
        ({"network": {"publish": ["80"]}}, "network.publish"),
        ({"vfs": {"mounts": {"/m": {"type": "memory"}}}}, "vfs"),
    ],
)
def test_what_macos_cannot_do_is_an_error(project: Path, sections: dict[str, object], name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(name)):
        Sandbox(asked(**sections))


def test_elsewhere_than_on_macos_it_is_an_error(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seatbelt_profile, "SANDBOX_EXEC", "/nowhere/sandbox-exec")
    with pytest.raises(EngineUnavailable, match="for macOS"):
        Sandbox(asked())
