"""`scripts/compat` finds what passes outside and fails inside, and for some modules there is nothing to find."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
#: Quick ones, of those that failed inside once: owners of files, and what a process may do to itself.
QUICK = ["test_posix", "test_fork1", "test_fcntl"]


@pytest.fixture(scope="module")
def compat() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("compat_script", str(ROOT / "scripts" / "compat"))
    spec = importlib.util.spec_from_loader("compat_script", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("suite", "inside", "wrong"),
    [
        ("cpython", {"test.test_os.A.test_x": True}, 0),
        ("cpython", {"test.test_os.A.test_x": False}, 1),
        ("cpython", {}, 0),
        ("go", {"TestTerminalSignal": False}, 0),
        ("go", {"TestOther": False}, 1),
    ],
    ids=["passes", "fails", "skips itself", "excused", "not excused"],
)
def test_a_test_that_fails_only_inside_is_found_unless_it_is_excused(
    compat: ModuleType, monkeypatch: pytest.MonkeyPatch, suite: str, inside: dict[str, bool], wrong: int
) -> None:
    outside = dict.fromkeys(inside, True) or {"test.test_os.A.test_x": True}
    monkeypatch.setattr(compat, "results", lambda suite, name, limit, sandboxed: inside if sandboxed else outside)
    assert compat.compare(suite, ["one"], 1) == wrong


def test_the_results_are_read_from_what_the_suites_print(compat: ModuleType) -> None:
    printed = "test_a (test.test_os.A.test_a) ... ok\ntest_b (test.test_os.A.test_b)\nWhat it does. ... FAIL\n"
    assert compat.parsed_python(printed) == {"test.test_os.A.test_a": True, "test.test_os.A.test_b": False}
    assert compat.parsed_go("--- PASS: TestA (0.00s)\n    --- FAIL: TestB/x (0.00s)\n") == {
        "TestA": True,
        "TestB/x": False,
    }


@pytest.mark.parametrize("module", QUICK)
def test_what_passes_outside_passes_inside(compat: ModuleType, module: str, capfd: pytest.CaptureFixture[str]) -> None:
    if subprocess.run([compat.PYTHON, "-c", f"import test.{module}"], capture_output=True, check=False).returncode:
        pytest.skip("the system's Python has no test suite")
    assert compat.compare("cpython", [module], 300) == 0
    assert "nothing was compared" not in capfd.readouterr().out
