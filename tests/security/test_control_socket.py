"""The socket that drives a sandbox is out of its tenants' sight: who could speak there could loosen the policy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox import Sandbox

TRY = """
import glob, os, socket, sys
found = []
for directory, _, names in os.walk(sys.argv[1], onerror=lambda problem: None):
    found += [os.path.join(directory, name) for name in names if name == "socket"]
for path in [*found, *sys.argv[2:]]:
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(path)
        print("connected to", path)
    except OSError as problem:
        print("refused", problem.errno)
"""


@pytest.mark.parametrize("inside_the_project", [True, False])
def test_a_tenant_cannot_reach_its_own_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside_the_project: bool
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    home = (project if inside_the_project else tmp_path) / "home"
    monkeypatch.setenv("SANDBOX_HOME", str(home))
    with Sandbox({"filesystem": {"root": str(project)}}) as sandbox:
        path = home / "vms" / sandbox.id / "socket"
        assert path.is_socket()
        (project / "try.py").write_text(TRY, encoding="utf-8")
        tried = sandbox.exec(["python3", "try.py", str(tmp_path), str(path), f"/proc/{os.getpid()}/root{path}"])
        assert tried.exit_code == 0, tried.stderr
        assert "refused" in tried.stdout
        assert "connected" not in tried.stdout
