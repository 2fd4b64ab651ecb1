"""The clients that the seed itself shows, word for word, against our server (`seed/`; each names what it lacks)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent / "seed"


def run(argv: list[str], at: Path) -> str:
    environment = {**os.environ, "OPENAI_API_KEY": "sk-not-a-real-key", "GOFLAGS": "-mod=mod", "GOPROXY": "off"}
    done = subprocess.run(argv, cwd=at, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def place(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the samples; `sandbox` and `python`, which they call by those names, are on the PATH.

    `python` inside, too: the machine's own may be none, or lie in a home that is not shown.
    """
    assert shutil.which("sandbox") is not None
    directory = tmp_path / "samples"
    (directory / "bin").mkdir(parents=True)
    (directory / "bin" / "python").write_text('#!/bin/sh\nexec /usr/bin/python3 "$@"\n')
    (directory / "bin" / "python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}/bin:{os.environ['PATH']}")
    return directory


def test_python(place: Path) -> None:
    # It uses `os` and does not import it.
    script = "import os\n" + (SAMPLES / "client.py.txt").read_text(encoding="utf-8")
    printed = run([sys.executable, "-c", script], place)
    assert "Hello from sandbox!" in printed
    assert 'b\'{"status": "ok"}\'' in printed


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node (scripts/setup dev)")
def test_typescript(place: Path, typescript: Path) -> None:
    (place / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    shutil.copy(SAMPLES / "client.ts.txt", place / "client.ts")
    modules = typescript / "clients" / "typescript" / "node_modules"
    (place / "node_modules").symlink_to(modules)
    # It leaves fields to be set after the constructor, which only a lenient compiler lets through.
    lenient = ["--module", "NodeNext", "--moduleResolution", "NodeNext", "--target", "ES2022", "--types", "node"]
    run([str(modules / ".bin" / "tsc"), *lenient, "client.ts"], place)
    assert "Hello from sandbox!" in run(["node", "client.js"], place)


@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go (scripts/setup dev)")
def test_go(place: Path) -> None:
    (place / "go.mod").write_text("module github.com/example\n\ngo 1.19\n", encoding="utf-8")
    (place / "sandbox").mkdir()
    # It uses `io` and does not import it.
    client = (SAMPLES / "client.go.txt").read_text(encoding="utf-8").replace('"fmt"\n', '"fmt"\n    "io"\n', 1)
    (place / "sandbox" / "client.go").write_text(client, encoding="utf-8")
    imports = 'import (\n"fmt"\n"log"\n"os"\n"github.com/example/sandbox"\n)\n'
    usage = (SAMPLES / "usage.go.txt").read_text(encoding="utf-8")
    (place / "main.go").write_text(f"package main\n\n{imports}\nfunc main() {{\n{usage}}}\n", encoding="utf-8")
    assert "Hello from sandbox!" in run(["go", "run", "."], place)
