"""A person with a home, a project and settings of their own, whose whole network is a mock."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agents.mock import World
from tests.agents.screen import Screen
from tests.sandboxes import program


class Desk:
    """The person's home, project and variables."""

    def __init__(self, directory: Path) -> None:
        self.home, self.project, self.sandbox = (directory / one for one in ("person", "project", "sandbox"))
        for one in (self.home, self.project, self.sandbox):
            one.mkdir()
        self.world = World(directory, lambda *_: (200, [], b"{}"))
        self.config: dict[str, Any] = {"network": self.world.config()}
        self.env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "SANDBOX_HOME": str(self.sandbox),
            "SANDBOX_AUTHORITY": os.environ["SANDBOX_AUTHORITY"],
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            # What an interpreter from elsewhere than the system's needs to find itself.
            **{name: value for name, value in os.environ.items() if name.startswith("LD_LIBRARY")},
        }
        subprocess.run(["git", "init", "-q"], cwd=self.project, check=True, env=self.env)
        (self.project / "README.md").write_text("hello\n")
        self.write()

    def write(self) -> None:
        """Writes the person's own settings."""
        (self.sandbox / "config.yaml").write_text(yaml.safe_dump(self.config))

    def has(self, files: dict[str, str]) -> None:
        """Puts files into the person's home."""
        for name, content in files.items():
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(content)

    def screen(self, *words: str) -> Screen:
        """`sandbox words…` in a terminal."""
        return Screen(*words, cwd=self.project, env=self.env)

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """`sandbox words…`, with what it printed."""
        whole: dict[str, Any] = {"cwd": self.project, "env": self.env, "capture_output": True, "text": True, **options}
        return subprocess.run([*program(), *words], **whole, check=False)

    def kept(self, name: str) -> Path:
        """The kept home of a profile for this project."""
        (place,) = (one for one in (self.sandbox / "state" / name).iterdir() if one.is_dir())
        return place / "home"

    def installs(self, name: str, script: str, directory: str = ".local/bin") -> Path:
        """A stand-in program of the person's."""
        file = self.home / directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(script)
        file.chmod(0o755)
        self.env["PATH"] = f"{file.parent}:{self.env['PATH']}"
        return file


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.world.end()


Install = Callable[[str, str], Path]
