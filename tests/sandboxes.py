"""Fixtures for tests that use the real `sandbox` command, with a registry and a project of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]

#: What `--engine` (tests/engine_choice.py) can say to `sandbox` processes, too.
CONFIGURED = {"qemu"}


def configure(config: pytest.Config, home: Path) -> None:
    """Has `sandbox` processes with that SANDBOX_HOME take the engine of `--engine`."""
    engine = config.getoption("--engine")
    if engine in CONFIGURED:
        home.mkdir(mode=0o700, exist_ok=True)
        (home / "config.yaml").write_text(f"engine: {engine}\n")


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """SANDBOX_HOME. Whatever still runs there at the end of the test is ended."""
    place, project = tmp_path / "home", tmp_path / "project"
    configure(request.config, place)
    project.mkdir()
    monkeypatch.setenv("SANDBOX_HOME", str(place))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(project)
    yield place
    from sandbox.registry import remove
    from sandbox.registry.registry import entries

    for entry in entries(str(place)):
        if entry.running and entry.pid != os.getpid():
            remove.kill(entry)


@pytest.fixture
def rpc(home: Path) -> list[str]:
    """The command that clients start."""
    return [*program(), "--rpc"]


@pytest.fixture
def cli(home: Path) -> Command:
    """Runs `sandbox` with words and returns what it printed and how it ended."""

    def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
        given: Any = options
        return subprocess.run([*program(), *words], capture_output=True, text=True, check=False, **given)

    return run


@contextmanager
def address(path: Path) -> Iterator[str]:
    """A name for that socket that an address has room for, however deep the test's directory lies."""
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def program() -> list[str]:
    """The `sandbox` command of the interpreter that runs the tests."""
    return [sys.executable, "-m", "sandbox.cli.main"]
