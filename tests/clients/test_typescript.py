"""The TypeScript client: its own tests, and the examples, against the real `sandbox`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.places import CLIENTS
from tests.sandboxes import program

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node and npm (scripts/setup dev)")


def node(*words: str, at: Path, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "SANDBOX_HOME": str(home),
        "SANDBOX_COMMAND": " ".join(program()),
        "OPENAI_API_KEY": "sk-not-a-real-key",
    }
    return subprocess.run(["node", *words], cwd=at, env=environment, capture_output=True, text=True, check=False)


def test_it_has_no_runtime_dependencies() -> None:
    import json

    assert "dependencies" not in json.loads((CLIENTS / "typescript" / "package.json").read_text(encoding="utf-8"))


def test_its_own_tests_and_the_shared_vectors_pass(typescript: Path, home: Path) -> None:
    at = typescript / "clients" / "typescript"
    # By name: some versions of Node take no directory here, others no pattern.
    done = node("--test", *map(str, sorted(at.glob("dist/test/*.test.js"))), at=at, home=home)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("example", "words", "shown"),
    [
        ("usage", [], "Hello from sandbox!"),
        ("agent", [], "agent finished"),
        ("registry", [], "Pruned 0 VMs"),
        ("my-sandbox", ["run", "echo", "under my policy"], "under my policy"),
    ],
)
def test_the_examples_do_what_they_say(
    example: str, words: list[str], shown: str, typescript: Path, home: Path
) -> None:
    done = node(f"dist/{example}.js", *words, at=typescript / "examples" / "typescript", home=home)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
