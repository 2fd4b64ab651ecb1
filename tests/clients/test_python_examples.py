"""The seed's Python samples, and the examples."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import Sandbox
from tests.clients.places import ROOT


def run(example: str, *words: str) -> str:
    environment = {**os.environ, "OPENAI_API_KEY": "sk-not-a-real-key"}
    script = ROOT / "examples" / "python" / example
    done = subprocess.run(
        [sys.executable, script, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_seeds_usage_runs_unchanged(home: Path) -> None:
    printed = run("usage.py")
    assert "Hello from sandbox!" in printed
    assert 'b\'{"status": "ok"}\'' in printed


def test_the_seeds_registry_sample_runs(home: Path) -> None:
    with Sandbox({"image": "standard"}) as sandbox:
        printed = run("registry.py", sandbox.id)
    assert f"{sandbox.id}: standard (PID {os.getpid()})" in printed
    assert "hello" in printed


def test_the_complete_example_runs_and_the_agent_never_sees_the_key(home: Path) -> None:
    printed = run("agent.py")
    assert "agent finished" in printed
    assert '"key_is_a_placeholder": true' in printed
    assert "[FS] Wrote" in printed


@pytest.mark.parametrize("words", [["echo", "under my policy"], ["--", "echo", "under my policy"]])
def test_a_command_of_your_own(home: Path, words: list[str]) -> None:
    assert run("my_sandbox.py", "run", *words) == "under my policy\n"
