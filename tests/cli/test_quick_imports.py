"""The command finds its own modules itself: the same ones, from the same files, as Python would."""

from __future__ import annotations

import compileall
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sandbox

ASK = """
import sys
sys.path.insert(0, sys.argv[1])
from sandbox.cli.quick_imports import install
install()
from sandbox.policy import decision
import sandbox.config.units
for module in (decision, sandbox.config.units, sandbox.policy):
    spec = module.__spec__
    print(type(spec.loader).__name__, spec.origin, spec.cached, module.__file__, module.__package__,
          spec.submodule_search_locations, spec.loader.get_source(module.__name__) is not None)
print(getattr(decision, "ADDED", None))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package that may be changed, with its bytecode."""
    source = Path(sandbox.__file__).parent
    shutil.copytree(source, tmp_path / "sandbox", ignore=shutil.ignore_patterns("__pycache__", "bin"))
    assert compileall.compile_dir(tmp_path / "sandbox", quiet=1)
    return tmp_path / "sandbox"


def asked(package: Path, *options: str) -> list[str]:
    argv = [sys.executable, *options, "-c", ASK, str(package.parent)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_module_is_the_one_that_python_would_have_found(package: Path) -> None:
    ours, plain = asked(package), asked(package, "-X", f"pycache_prefix={package.parent}/none")
    assert [line.split()[0] for line in ours[:3]] == ["_Loader"] * 3
    assert [line.split()[0] for line in plain[:3]] == ["SourceFileLoader"] * 3
    without_bytecode = [[line.split()[1], *line.split()[3:]] for line in ours[:3]]
    assert without_bytecode == [[line.split()[1], *line.split()[3:]] for line in plain[:3]]


def test_a_source_that_was_changed_after_it_was_compiled_counts(package: Path) -> None:
    with (package / "policy" / "decision.py").open("a") as file:
        file.write("\nADDED = 1\n")
    assert asked(package)[3] == "1"


@pytest.mark.parametrize("damaged", [b"", b"\0" * 15, b"\0" * 4096])
def test_invalid_bytecode_is_not_used(package: Path, damaged: bytes) -> None:
    for file in (package / "policy" / "__pycache__").glob("decision.*.pyc"):
        file.write_bytes(damaged)
    assert asked(package)[3] == "None"
