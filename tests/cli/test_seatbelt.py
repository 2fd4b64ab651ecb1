"""Running a command the macOS way. The profile cannot be enforced here; a stand-in for sandbox-exec lets everything
around it be tried: the gate, the variables, the status, what is left behind."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from sandbox.cli.seatbelt import Enclosure, run
from sandbox.config.model import Config
from sandbox.engines import seatbelt
from sandbox.engines.choose import choose
from sandbox.errors import EngineUnavailable, SandboxError
from tests.network.room import Origin


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stand_in = tmp_path / "sandbox-exec"
    stand_in.write_text(f'#!/bin/sh\n[ "$1" = -p ] && printf %s "$2" > {tmp_path}/profile\nshift 3\nexec "$@"\n')
    stand_in.chmod(0o755)
    monkeypatch.setattr(seatbelt, "SANDBOX_EXEC", str(stand_in))
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    made = tmp_path / "project"
    made.mkdir()
    monkeypatch.chdir(made)
    return made


def config(**sections: object) -> Config:
    return Config.read(sections)


def test_curl_and_git_go_through_the_gate_because_their_environment_says_so(project: Path, origin: Origin) -> None:
    allowed = config(network={"allowed_hosts": ["good.test", "127.0.0.1"]})
    with Enclosure(allowed, resolve=lambda host, port: ["127.0.0.1"]) as enclosure:
        fetch = f"curl -sS http://good.test:{origin.port}/a >out; curl -sS -i http://evil.test/ >refused"
        assert enclosure.run(["sh", "-c", fetch]) == 0
    assert "GET /a" in (project / "out").read_text()
    assert "X-Proxy-Error: blocked-by-allowlist" in (project / "refused").read_text()


def test_the_status_is_the_commands_and_nothing_is_left_behind(project: Path) -> None:
    before = set(os.listdir(project.parent))
    assert run(config(), ["sh", "-c", 'touch "$TMPDIR/x" "$HOME/y"; exit 7']) == 7
    assert run(config(), ["sh", "-c", "kill -TERM $$"]) == 143
    assert set(os.listdir(project.parent)) - before <= {"profile", "home"}


def test_the_profile_names_the_gates_own_port(project: Path) -> None:
    assert run(config(), ["sh", "-c", 'echo "$HTTP_PROXY" >proxy']) == 0
    port = (project / "proxy").read_text().strip().rpartition(":")[2]
    text = (project.parent / "profile").read_text()
    assert f'(remote ip "localhost:{port}")' in text and f'{project}")' in text


def test_secrets_are_placeholders_and_the_authority_is_trusted(project: Path) -> None:
    secret = {"value": "the-real-one", "hosts": ["api.test"]}
    asked = config(network={"secrets": {"KEY": secret}}, environment={"set": {"KEY": "${KEY}"}})
    assert run(asked, ["sh", "-c", 'env >env; cp "$SSL_CERT_FILE" bundle']) == 0
    seen = (project / "env").read_text()
    assert "the-real-one" not in seen and "KEY=SANDBOX_PLACEHOLDER_" in seen
    assert "BEGIN CERTIFICATE" in (project / "bundle").read_text()


def test_what_macos_cannot_do_is_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for asked, name in (
        ({"limits": {"memory": "1g"}}, "limits.memory"),
        ({"mode": "max"}, "filesystem.overlay"),
        ({"network": {"publish": ["80"]}}, "network.publish"),
    ):
        with pytest.raises(SandboxError, match=re.escape(name)):
            run(config(**asked), ["true"])
    with pytest.raises(EngineUnavailable, match="sandbox run"):
        choose(config(engine="seatbelt"))
    monkeypatch.setattr(seatbelt, "SANDBOX_EXEC", "/nowhere/sandbox-exec")
    with pytest.raises(EngineUnavailable, match="for macOS"):
        run(config(), ["true"])
