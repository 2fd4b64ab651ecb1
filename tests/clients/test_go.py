"""The Go client: its own tests, and the examples, against the real `sandbox`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.places import CLIENTS, ROOT
from tests.sandboxes import program

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="needs Go (scripts/setup dev)")


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    return {
        **os.environ,
        "SANDBOX_COMMAND": " ".join(program()),
        "OPENAI_API_KEY": "sk-not-a-real-key",
        "GOFLAGS": "-mod=mod",
        "GOPROXY": "off",
        "CGO_ENABLED": "0",  # it is all Go: no C compiler needed
    }


def go(*words: str, at: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["go", *words], cwd=at, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("place", [CLIENTS / "go", ROOT / "examples" / "go"], ids=["client", "examples"])
def test_it_is_formatted_and_vetted(place: Path, environment: dict[str, str]) -> None:
    assert subprocess.run(["gofmt", "-l", "."], cwd=place, capture_output=True, text=True, check=True).stdout == ""
    vetted = go("vet", "./...", at=place, environment=environment)
    assert vetted.returncode == 0, vetted.stderr


def test_its_own_tests_and_the_shared_vectors_pass(environment: dict[str, str]) -> None:
    done = go("test", "-count=1", "-timeout=30m", "./...", at=CLIENTS / "go", environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_program_installs_it_as_a_module(tmp_path: Path, environment: dict[str, str]) -> None:
    packed = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "go-module"), str(tmp_path / "proxy")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    program = tmp_path / "program"
    program.mkdir()
    (program / "go.mod").write_text("module example.test/program\n\ngo 1.19\n", encoding="utf-8")
    (program / "main.go").write_text(PROGRAM, encoding="utf-8")
    installing = {
        **environment, "GOPROXY": f"file://{tmp_path}/proxy", "GOSUMDB": "off", "GOMODCACHE": str(tmp_path / "cache"),
        "GOFLAGS": "-mod=mod -modcacherw",
    }  # fmt: skip
    for words in (["get", packed.stdout.strip()], ["run", "."]):
        done = go(*words, at=program, environment=installing)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "installed\n"


PROGRAM = """
package main

import (
	"context"
	"os"

	"github.com/example/sandbox"
)

func main() {
	vm, err := sandbox.Create(context.Background(), nil)
	if err != nil {
		panic(err)
	}
	defer vm.Close()
	if _, err := vm.Exec(context.Background(), "echo installed", sandbox.WithStdout(os.Stdout)); err != nil {
		panic(err)
	}
}
"""


@pytest.mark.parametrize("system", ["darwin", "windows"])
def test_programs_for_other_systems_that_import_it_compile(system: str, environment: dict[str, str]) -> None:
    built = go("build", "./...", at=CLIENTS / "go", environment={**environment, "GOOS": system})
    assert built.returncode == 0, built.stderr


@pytest.mark.parametrize(
    ("example", "words", "shown"),
    [
        ("usage", [], "Hello from sandbox!"),
        ("basic", [], "hello"),
        ("events", [], "Exec: /bin/sh -c exit 3 (exit=3)"),
        ("agent", [], "agent finished"),
        ("registry", [], "Pruned 0 VMs"),
        ("custom-cli", ["run", "echo", "under my policy"], "under my policy"),
    ],
)
def test_the_examples_do_what_they_say(example: str, words: list[str], shown: str, environment: dict[str, str]) -> None:
    done = go("run", f"./{example}", *words, at=ROOT / "examples" / "go", environment=environment)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout + done.stderr
