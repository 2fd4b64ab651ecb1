"""tests/second_try.py: who reads a red or green run of 10,000 tests can rely on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parent.parent

ONCE = """
from pathlib import Path
def test_one():
    seen = Path(__file__).with_suffix(".seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""


def run(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    plugins = ["-p", "no:cacheprovider", "-p", "xdist", "-p", "tests.second_try"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "--rootdir", ".", *options],
        cwd=directory,
        env={"PYTHONPATH": str(TREE), "PATH": "/usr/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_good.py").write_text("def test_good(): pass\n")
    return tmp_path


def test_what_passes_alone_is_named_and_does_not_fail_the_run(tree: Path) -> None:
    (tree / "test_once.py").write_text(ONCE)
    result = run(tree, "--second-try", "-n", "2")
    assert result.returncode == 0, result.stdout
    assert "FLAKY test_once.py::test_one" in result.stdout


def test_without_the_option_it_fails(tree: Path) -> None:
    (tree / "test_once.py").write_text(ONCE)
    assert run(tree).returncode == 1


def test_what_fails_again_fails_the_run(tree: Path) -> None:
    (tree / "test_always.py").write_text("def test_one(): assert False\n")
    result = run(tree, "--second-try")
    assert result.returncode == 1
    assert "FLAKY" not in result.stdout


def test_one_about_security_has_one_try(tree: Path) -> None:
    (tree / "tests/security").mkdir(parents=True)
    (tree / "tests/security/test_once.py").write_text(ONCE)
    assert run(tree, "--second-try").returncode == 1


def test_many_at_once_are_no_accident(tree: Path) -> None:
    for at in range(4):
        (tree / f"test_once{at}.py").write_text(ONCE)
    assert run(tree, "--second-try").returncode == 1
